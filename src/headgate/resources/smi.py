"""The Service Mesh Interface's kinds, in their hub form (requirements 2.1)."""

from typing import Annotated

from msgspec import Meta

from headgate.resources.meta import Input, Resource

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
    api_group: str = ""


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
