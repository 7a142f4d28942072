"""The Gateway API's kinds, as far as headgate reads them."""

from msgspec import field

from headgate.resources.meta import Input, Resource


class GrantFrom(Input, frozen=True, kw_only=True):
    """Who may refer."""

    group: str
    kind: str
    namespace: str


class GrantTo(Input, frozen=True, kw_only=True):
    """What may be referred to, in the grant's own namespace; without a name, all of the kind."""

    group: str
    kind: str
    name: str = ""


class ReferenceGrantSpec(Input, frozen=True, kw_only=True):
    """Any of `from` may refer to any of `to`."""

    from_: tuple[GrantFrom, ...] = field(name="from")
    to: tuple[GrantTo, ...]


class ReferenceGrant(Resource, frozen=True, kw_only=True):
    """Consent of a namespace to be referred to from another one (requirements 2.5, D12)."""

    spec: ReferenceGrantSpec
