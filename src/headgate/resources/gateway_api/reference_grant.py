"""ReferenceGrants (requirements 2.5, D12)."""

from collections.abc import Iterator

from msgspec import field

from headgate.errors import Cause
from headgate.kinds import GATEWAY, names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.kind import Kind
from headgate.resources.meta import Input, Object, Resource, part, rows


class GrantFrom(Input, frozen=True, kw_only=True):
    """The kind and the namespace of objects that may refer to objects of another namespace."""

    group: str
    kind: str
    namespace: str


class GrantTo(Input, frozen=True, kw_only=True):
    """Objects of the grant's namespace that may be referred to. Without a name, all objects of the kind."""

    group: str
    kind: str
    name: str = ""


class ReferenceGrantSpec(Input, frozen=True, kw_only=True):
    """`spec` of a ReferenceGrant: any object of `from` may refer to any object of `to`."""

    from_: tuple[GrantFrom, ...] = field(name="from")
    to: tuple[GrantTo, ...]


class ReferenceGrant(Resource, frozen=True, kw_only=True):
    """A ReferenceGrant: it allows references to objects of its namespace from other namespaces (requirements 2.5, D12)."""

    spec: ReferenceGrantSpec


def grant_causes(obj: Object) -> Iterator[Cause]:
    """Yield a mistake for each entry of a ReferenceGrant without `group`, which is required but may be empty."""
    for name in ("from", "to"):
        for index, reference in rows(part(obj, "spec").get(name)):
            if reference.get("group") is None:
                yield Cause(f"spec.{name}[{index}].group", 'is missing; write "" for the core group')


KIND = Kind(
    names_of("ReferenceGrant", GATEWAY),
    versions=("v1", "v1beta1"),
    shape=ReferenceGrant,
    checks=grant_causes,
    columns=(
        NAME,
        Column("From", cell=cells.pairs("spec.from", "namespace", "kind")),
        Column("To", cell=cells.pairs("spec.to", "kind", "name")),
        AGE,
    ),
    recorded=True,
)
