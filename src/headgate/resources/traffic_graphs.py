"""Types of the inspect API for the traffic graph: Services or workloads, the traffic between them, and what divides it.

Nodes are referred to by their index in `status.nodes`. All numbers are of the requests and connections in the window.
"""

from collections.abc import Mapping

from headgate.resources.inspect import API_VERSION, Answer, AnswerList, ExactShare, ObjectName, Time
from headgate.resources.meta import Key

SERVICES, WORKLOADS = "services", "workloads"
GRAPHS = (SERVICES, WORKLOADS)
"""The names of the graphs."""


class GraphNode(Answer, frozen=True, kw_only=True):
    """A Service, a workload, or a peer of kind `Outside`, which has the name `gateway`, an identity or an address.

    `pods` has the number of pods that belong to it now, and `meshed` that of those with a sidecar. `errors` and `warnings` count
    the findings about the object; those of a Service include findings about objects that define its routes.
    """

    kind: str
    namespace: str
    name: str
    labels: Mapping[str, str] = {}
    pods: int = 0
    meshed: int = 0
    errors: int = 0
    warnings: int = 0


class GraphEdge(Answer, frozen=True, kw_only=True, gc=False):
    """The traffic from one node to another. Each request is on exactly one edge. `copy`: these are mirrored copies.

    `requests` includes `failures` and `denied`, and `connections` includes `denied_connections`, but not `failed_connections`. `audited` are
    allowed requests that rules in audit mode would deny. Latencies are null without a response, and `bytes` of both directions without a connection. Of `exchanged` requests and connections, which
    reached a server, `secured` used mutual TLS.
    """

    source: int
    target: int
    copy: bool = False
    requests: int = 0
    failures: int = 0
    denied: int = 0
    connections: int = 0
    failed_connections: int = 0
    denied_connections: int = 0
    audited: int = 0
    p50_microseconds: int | None = None
    p90_microseconds: int | None = None
    p99_microseconds: int | None = None
    bytes: int | None = None
    exchanged: int = 0
    secured: int = 0


class GraphBackend(Answer, frozen=True, kw_only=True):
    """A backend of a split: its exact wanted share, and the requests or connections that it answered.

    At the wanted share, they are between `expected_low` and `expected_high` (3 sigma) of those that all backends answered. Both are null
    where other routes of the port can lead to the backend as well, because the counts of both are one.
    """

    service: int
    wanted: ExactShare
    requests: int
    expected_low: int | None = None
    expected_high: int | None = None


class GraphSplit(Answer, frozen=True, kw_only=True):
    """A TrafficSplit on a port of a Service. `match` has the names of its matches; empty if it splits all requests."""

    object: Key
    service: int
    port: int
    match: str
    backends: tuple[GraphBackend, ...]


class GraphMirror(Answer, frozen=True, kw_only=True):
    """A mirror: the share of the Service's requests that a rule or a split copies to the target, and the counted copies.

    Proxies count the copies of all rules that mirror to a port of the target together. `verdict` and `message` are
    the condition `CopiesWorse` of the object: the verdict is its reason, empty without a comparison.
    """

    object: Key
    service: int
    target: int
    share: ExactShare
    copies: int
    failures: int
    verdict: str = ""
    message: str = ""


class TrafficGraphStatus(Answer, frozen=True, kw_only=True):
    """A graph. `reason` and `message` say why a graph has no edges; otherwise they are empty.

    The reason is `NothingRouted` without a Service port that proxies route, `NoSidecars` without a pod that has one, else `NoTraffic`.

    Nodes are sorted by namespace, kind and name, edges by source, target and `copy`. A graph of one namespace has its nodes
    and their peers.
    """

    start_time: Time
    end_time: Time
    window_milliseconds: int
    reason: str = ""
    message: str = ""
    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()
    splits: tuple[GraphSplit, ...] = ()
    mirrors: tuple[GraphMirror, ...] = ()


class TrafficGraph(Answer, frozen=True, kw_only=True):
    """The traffic of the mesh or of one namespace in a window: the graph `services` or `workloads`."""

    metadata: ObjectName
    status: TrafficGraphStatus
    api_version: str = API_VERSION
    kind: str = "TrafficGraph"


class TrafficGraphList(AnswerList, frozen=True, kw_only=True):
    """The graphs."""

    items: tuple[TrafficGraph, ...]
    kind: str = "TrafficGraphList"
