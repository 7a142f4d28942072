"""The operator's settings as one immutable value, which is an argument of the compiler."""

from typing import Literal

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that change the compiled configuration.

    `domain` is the cluster's DNS domain.
    `lowest_port` is the smallest TCP port that the gateway may bind; lower ports are reachable through its HTTP proxy.
    `trust_domain` is the host in all SPIFFE IDs of the mesh: `spiffe://<trust domain>/ns/<namespace>/sa/<account>`.
    `mtls` is the TLS mode of workloads with a sidecar that no TLSConfig selects (R74).
    `access` is for workloads that no TrafficTarget selects (D21): `selected` allows every request, `deny` denies all.
    `certificate_seconds` is the lifetime of a workload's certificate. Connections between proxies end before it expires.
    With `gateway_pods`, each Gateway has pods and a Service of its own, as on a cluster.
    Without `gateway_pods`, `nginx` says whether nginx can listen for Services on this machine, instead of the gateway.
    `traces` is the address of a collector of spans, `HOST:PORT`; empty: no traces. `trace_sampling` is the share of requests
    whose trace a proxy begins, in ten-thousandths.
    `outbound` is for a transparent sidecar's connections to addresses that belong to no Service: `allow` or `refuse`.
    """

    domain: str = "cluster.local"
    lowest_port: int = 0
    trust_domain: str = "cluster.local"
    mtls: Literal["off", "permissive", "strict"] = "permissive"
    access: Literal["selected", "deny"] = "selected"
    outbound: Literal["allow", "refuse"] = "allow"
    gateway_pods: bool = False
    traces: str = ""
    trace_sampling: int = 100
    nginx: bool = True
    certificate_seconds: int = 24 * 60 * 60


DEFAULTS = Settings()
