"""The Service Mesh Interface's kinds, in their hub form (requirements 2.1)."""

from typing import Annotated

from msgspec import Meta

from headgate.resources.meta import Input, Resource

Weight = Annotated[int, Meta(ge=0)]

ALLOW_SELF_REFERENCE = "headgate.dev/allow-self-reference"
NO_ENDPOINTS = "headgate.dev/no-endpoints"


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
