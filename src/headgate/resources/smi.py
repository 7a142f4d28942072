"""Types of the mesh's kinds in hub version: those of SMI (requirements 2.1), and headgate's TLSConfig (004, D17)."""

from typing import Annotated

from msgspec import Meta

from headgate.resources.meta import Input, Resource
from headgate.resources.workloads import LabelSelector

Weight = Annotated[int, Meta(ge=0)]

ALLOW_SELF_REFERENCE = "headgate.dev/allow-self-reference"
NO_ENDPOINTS = "headgate.dev/no-endpoints"
STICKY = "headgate.dev/sticky"
MODE = "headgate.dev/mode"
AUDIT = "audit"
MODES = (AUDIT, "enforce")
"""The values of the annotation `headgate.dev/mode` of a TrafficTarget; without it, the target is enforced."""
MIRROR = "headgate.dev/mirror"
"""The annotation of a split with a backend that gets copies of a part of the requests: `website-v2=20%`."""


class Backend(Input, frozen=True, kw_only=True):
    """A backend of a split: a Service (or `name.namespace`, D12) and its relative weight, an integer (R6, R7)."""

    service: str
    weight: Weight


class MatchReference(Input, frozen=True, kw_only=True):
    """A reference to an HTTPRouteGroup: only requests that match the group are split (R11)."""

    kind: str
    name: str


class TrafficSplitSpec(Input, frozen=True, kw_only=True):
    """`spec` of a split: clients call the root `service`, and `backends` share its traffic."""

    service: str
    backends: tuple[Backend, ...]
    matches: tuple[MatchReference, ...] = ()


class TrafficSplit(Resource, frozen=True, kw_only=True):
    """A TrafficSplit: it shares a root Service's traffic between other Services by weight (001)."""

    spec: TrafficSplitSpec


METHODS = ("*", "GET", "HEAD", "PUT", "POST", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")


class HttpMatch(Input, frozen=True, kw_only=True):
    """One match of a group. A request matches if it satisfies all fields that are set (R13 to R15, D5).

    `path_regex` is anchored at the start of the path only. A header's regular expression must match the whole value.
    Missing methods, or `*`, mean all methods.
    """

    name: str
    methods: tuple[str, ...] | None = None
    path_regex: str | None = None
    headers: dict[str, str] | None = None


class HTTPRouteGroupSpec(Input, frozen=True, kw_only=True):
    """`spec` of a group: a request belongs to it if it satisfies one of `matches`."""

    matches: tuple[HttpMatch, ...]


class HTTPRouteGroup(Resource, frozen=True, kw_only=True):
    """An HTTPRouteGroup: a named set of requests, for splits and access rules (requirements 2.2)."""

    spec: HTTPRouteGroupSpec


class PortMatch(Input, frozen=True, kw_only=True):
    """Connections of a route, selected by destination port. An empty list means all ports."""

    name: str = ""
    ports: tuple[int, ...] = ()


class PortRouteSpec(Input, frozen=True, kw_only=True):
    """`spec` of a TCPRoute or UDPRoute. Without `matches` it selects every connection."""

    matches: PortMatch = PortMatch()


class TCPRoute(Resource, frozen=True, kw_only=True):
    """SMI's TCPRoute: a named set of TCP connections for access rules (R68).

    The Gateway API's TCPRoute is another kind.
    """

    spec: PortRouteSpec = PortRouteSpec()


class UDPRoute(Resource, frozen=True, kw_only=True):
    """SMI's UDPRoute. It is stored and reported, but not enforced: proxies do not handle UDP."""

    spec: PortRouteSpec = PortRouteSpec()


RULE_KINDS = ("HTTPRouteGroup", "TCPRoute", "UDPRoute")


class Subject(Input, frozen=True, kw_only=True):
    """A ServiceAccount whose pods may call the destination. An empty namespace means the TrafficTarget's own."""

    kind: str
    name: str
    namespace: str = ""


class Destination(Subject, frozen=True, kw_only=True):
    """The ServiceAccount whose pods are called.

    `port` (v1alpha1, v1alpha2) limits the target to one port; 0 means all ports.
    """

    port: int = 0


class Rule(Input, frozen=True, kw_only=True):
    """Allowed traffic: an HTTPRouteGroup, TCPRoute or UDPRoute.

    Without `matches`, all traffic of the referenced object is allowed.
    """

    kind: str
    name: str
    matches: tuple[str, ...] | None = None


class TrafficTargetSpec(Input, frozen=True, kw_only=True):
    """`spec` of a TrafficTarget: `sources` may send pods of `destination` the traffic that one of `rules` allows."""

    destination: Destination
    sources: tuple[Subject, ...] = ()
    rules: tuple[Rule, ...] = ()


class TrafficTarget(Resource, frozen=True, kw_only=True):
    """A TrafficTarget: it allows pods of some ServiceAccounts to call the pods of another ServiceAccount (003)."""

    spec: TrafficTargetSpec


class TLSConfigSpec(Input, frozen=True, kw_only=True):
    """`spec` of a TLSConfig: a selector of pods (R73), and additional DNS names for their certificates (R75).

    A selector without labels selects all pods of the namespace.
    """

    selector: LabelSelector
    subject_names: tuple[str, ...] = ()


class TLSConfig(Resource, frozen=True, kw_only=True):
    """A TLSConfig: the pods that it selects in its namespace accept mutual TLS only (R72 to R78)."""

    spec: TLSConfigSpec
