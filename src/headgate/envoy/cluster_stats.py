"""Envoy's own statistics of clusters that proxies report, under names of headgate (`stats_sink`).

mesh.copies_dropped  envoy.cluster_name  counter of the copies that Envoy dropped at the limits of the mirror cluster;
                                         `mesh.flagged` counts them too, with `outcomes.DROPPED_FLAG`
mesh.response_sizes  headgate.cluster    histogram of the sizes of response bodies in bytes, of clusters that count them:
                                         those of rules with a mirror, and those of their mirrors

One is of UDP listeners: `mesh.failed` with the attribute `cluster` counts the datagrams that have no backend.
"""

COPIES_DROPPED = "copies_dropped"
COPIES_CLUSTER = "envoy.cluster_name"
"""The attribute of Envoy's statistics with the name of a cluster. It ends at the first dot in the name."""
PENDING_OVERFLOW = ".upstream_rq_pending_overflow"  # Envoy's counter of requests dropped at a cluster's limits
RESPONSE_SIZES = "response_sizes"
SIZES_CLUSTER = "headgate.cluster"
"""The attribute with the whole name of a cluster, also if it has a dot: names of routes may have some."""
BODY_SIZE = ".upstream_rs_body_size"  # Envoy's histogram of a cluster's response sizes
DATAGRAMS_DROPPED = ".downstream_sess_no_route"  # Envoy's counter of datagrams for which no cluster exists
DROPPED_CLUSTER = "cluster"
"""The attribute with the name of a UDP listener, in the place of a cluster."""
