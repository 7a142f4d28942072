"""The kinds of the mesh, in their hub form: the Service Mesh Interface's (requirements 2.1), and headgate's own (004, D17)."""

from typing import Annotated

from msgspec import Meta

from headgate.resources.meta import Input, Resource
from headgate.resources.workloads import LabelSelector

Weight = Annotated[int, Meta(ge=0)]

ALLOW_SELF_REFERENCE = "headgate.dev/allow-self-reference"
NO_ENDPOINTS = "headgate.dev/no-endpoints"
STICKY = "headgate.dev/sticky"


class Backend(Input, frozen=True, kw_only=True):
    """A Service (or `name.namespace`, D12) and its relative weight, a whole number (R6, R7)."""

    service: str
    weight: Weight


class MatchReference(Input, frozen=True, kw_only=True):
    """Names the HTTPRouteGroup whose requests the split is for (R11)."""

    kind: str
    name: str


class TrafficSplitSpec(Input, frozen=True, kw_only=True):
    """`service` is the root that clients call; `backends` share its traffic."""

    service: str
    backends: tuple[Backend, ...]
    matches: tuple[MatchReference, ...] = ()


class TrafficSplit(Resource, frozen=True, kw_only=True):
    """Shares a root Service's traffic between other Services by weight (001)."""

    spec: TrafficSplitSpec


METHODS = ("*", "GET", "HEAD", "PUT", "POST", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")


class HttpMatch(Input, frozen=True, kw_only=True):
    """Requests of a group: every part that is given must fit (R13 to R15, D5).

    `path_regex` is anchored at the start of the path only, a header's regex must fit its whole value. No methods, or
    `*`, are all methods.
    """

    name: str
    methods: tuple[str, ...] | None = None
    path_regex: str | None = None
    headers: dict[str, str] | None = None


class HTTPRouteGroupSpec(Input, frozen=True, kw_only=True):
    """A request belongs to the group when it fits one of `matches`."""

    matches: tuple[HttpMatch, ...]


class HTTPRouteGroup(Resource, frozen=True, kw_only=True):
    """Names requests, for splits and access rules (requirements 2.2)."""

    spec: HTTPRouteGroupSpec


class PortMatch(Input, frozen=True, kw_only=True):
    """Connections of a route by their destination port; no ports are all."""

    name: str = ""
    ports: tuple[int, ...] = ()


class PortRouteSpec(Input, frozen=True, kw_only=True):
    """Without `matches` every connection is meant."""

    matches: PortMatch = PortMatch()


class TCPRoute(Resource, frozen=True, kw_only=True):
    """Names TCP connections for access rules (R68); not the Gateway API's kind of that name."""

    spec: PortRouteSpec = PortRouteSpec()


class UDPRoute(Resource, frozen=True, kw_only=True):
    """Names UDP traffic for access rules; no proxy looks at it, so it is only reported."""

    spec: PortRouteSpec = PortRouteSpec()


RULE_KINDS = ("HTTPRouteGroup", "TCPRoute", "UDPRoute")


class Subject(Input, frozen=True, kw_only=True):
    """Somebody who calls or is called: a ServiceAccount. No namespace is the TrafficTarget's own."""

    kind: str
    name: str
    namespace: str = ""


class Destination(Subject, frozen=True, kw_only=True):
    """Who is called. `port` (v1alpha1, v1alpha2) limits the target to one port of the pods; 0 is all."""

    port: int = 0


class Rule(Input, frozen=True, kw_only=True):
    """What is allowed: an HTTPRouteGroup, TCPRoute or UDPRoute. Without `matches` it is all of the group."""

    kind: str
    name: str
    matches: tuple[str, ...] | None = None


class TrafficTargetSpec(Input, frozen=True, kw_only=True):
    """`sources` may do what one of `rules` names, with pods of `destination`."""

    destination: Destination
    sources: tuple[Subject, ...] = ()
    rules: tuple[Rule, ...] = ()


class TrafficTarget(Resource, frozen=True, kw_only=True):
    """Allows some ServiceAccounts to call another one's pods (003, requirements 2.3)."""

    spec: TrafficTargetSpec


class TLSConfigSpec(Input, frozen=True, kw_only=True):
    """The pods of the namespace (no labels: all of them, R73), and names that certificates carry besides the identity (R75)."""

    selector: LabelSelector
    subject_names: tuple[str, ...] = ()


class TLSConfig(Resource, frozen=True, kw_only=True):
    """Lets the pods of its namespace that it selects talk through mutual TLS only (R72 to R78)."""

    spec: TLSConfigSpec
