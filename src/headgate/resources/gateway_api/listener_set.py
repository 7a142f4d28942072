"""ListenerSets: further listeners of a Gateway, which other teams own (GEP-1713)."""

from headgate.kinds import GATEWAY, names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, PROGRAMMED, Column
from headgate.resources.gateway_api.gateway import GROUP, Listener, listener_causes
from headgate.resources.kind import Kind, ReadyBy
from headgate.resources.meta import Input, Key, Resource


class ParentGatewayReference(Input, frozen=True, kw_only=True):
    """The Gateway of a ListenerSet. An empty namespace means the ListenerSet's own."""

    name: str
    group: str = GROUP
    kind: str = "Gateway"
    namespace: str = ""


class ListenerSetSpec(Input, frozen=True, kw_only=True):
    """`spec` of a ListenerSet: its Gateway, and the listeners that it adds to those of the Gateway."""

    parent_ref: ParentGatewayReference
    listeners: tuple[Listener, ...] = ()


class ListenerSet(Resource, frozen=True, kw_only=True):
    """A ListenerSet. Its certificates and its routes' namespaces count from its own namespace, not the Gateway's."""

    spec: ListenerSetSpec

    @property
    def gateway(self) -> Key:
        """The parent; it is a Gateway unless the reference names another kind."""
        ref = self.spec.parent_ref
        return Key(ref.group, ref.kind, ref.namespace or self.metadata.namespace, ref.name)


KIND = Kind(
    names_of("ListenerSet", GATEWAY),
    status=True,
    shape=ListenerSet,
    checks=listener_causes,
    columns=(
        NAME,
        Column("Gateway", cell=cells.at("spec.parentRef.name")),
        Column("Accepted", "", "Whether the Gateway accepts the ListenerSet.", cell=cells.condition("Accepted")),
        Column("Programmed", "", PROGRAMMED, cell=cells.condition("Programmed")),
        AGE,
        Column("Listeners", cell=cells.names("spec.listeners"), wide=True),
    ),
    recorded=True,
    ready_by=ReadyBy.CONDITIONS,
)
