"""Find the attachments that an older route prevents.

Proxies can't distinguish the connections of two TCPRoutes, so the oldest TCPRoute gets all connections. The routes of one
host are either HTTPRoutes or GRPCRoutes.
"""

from collections import defaultdict
from collections.abc import Iterable

from headgate.compiler.gateway_api.parents import AttachedRoute, Attachment, Link, Parents, linked
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.evaluate import fitting_names, matching_patterns
from headgate.model.routing import PortRef
from headgate.resources.meta import Key
from headgate.shared_map import SharedMap


def without_conflicts(parents: Parents, attached: SharedMap[Key, AttachedRoute]) -> SharedMap[Key, AttachedRoute]:
    """Return the routes without the attachments that an older route prevents; the same mapping if there are none."""
    older, changed = _OlderRoutes(), dict[Key, AttachedRoute]()
    for attached_route in sorted(attached.values(), key=lambda attached_route: attached_route.route.age):
        links = [older.allowed(attached_route.route, link) for link in attached_route.links]
        if any(link is not before for link, before in zip(links, attached_route.links, strict=True)):
            changed[attached_route.route.key] = linked(parents, attached_route.route, links)
    return attached.edited(changed)


class HostOwners:
    """The hosts of attached routes, each with the oldest route of the host."""

    def __init__(self) -> None:
        self._by_host: dict[str, CompiledRoute] = {}
        self._by_wildcard: dict[
            str, CompiledRoute
        ] = {}  # for each wildcard, the oldest route of a host that it matches

    def add(self, route: CompiledRoute, hosts: Iterable[str]) -> None:
        """Add the hosts of the next younger route."""
        for host in hosts:
            self._by_host.setdefault(host, route)
            for pattern in matching_patterns(host):
                self._by_wildcard.setdefault(pattern, route)

    def oldest(self, hosts: Iterable[str]) -> CompiledRoute | None:
        """Return the oldest route that has some names in common with `hosts`."""
        owners = [
            *(self._by_host[name] for host in hosts for name in fitting_names(self._by_host, host)),
            *(self._by_wildcard[host] for host in hosts if host in self._by_wildcard),
        ]
        return min(owners, key=lambda route: route.age, default=None)


class _OlderRoutes:
    """The hosts, listeners and Service ports of the routes that are older than the current one."""

    def __init__(self) -> None:
        self._connections: dict[tuple[Key, str] | PortRef, Key] = {}  # the oldest TCPRoute, by listener or port
        self._hosts: defaultdict[tuple[Key, str], defaultdict[str, HostOwners]] = defaultdict(
            lambda: defaultdict(HostOwners)
        )  # by Gateway and listener, then by kind

    def allowed(self, route: CompiledRoute, link: Link) -> Link:
        """Return the allowed part of a link, or the link with a refusal if no part is allowed. Add it to these routes."""
        if link.attachments:
            return self._to_gateway(route, link)
        return self._to_service(route, link) if link.ports and route.connections else link

    def _to_gateway(self, route: CompiledRoute, link: Link) -> Link:
        rivals = [self._rival(route, link, attachment) for attachment in link.attachments]
        free = tuple(attachment for attachment, rival in zip(link.attachments, rivals, strict=True) if rival is None)
        for attachment in free if route.usable else ():
            if route.connections:
                self._connections[link.parent.key, attachment.listener] = route.key
            else:
                self._hosts[link.parent.key, attachment.listener][route.key.kind].add(route, attachment.hosts)
        if free:
            return link if len(free) == len(link.attachments) else link._replace(attachments=free)
        what, listener = "connections" if route.connections else "hosts", link.attachments[0].listener
        message = f"the older {rivals[0]} already has these {what} of listener {listener}; change one of the two routes"
        return link._replace(attachments=(), refusal=Finding(route.key, Reason.CONFLICTED, link.parent.field, message))

    def _rival(self, route: CompiledRoute, link: Link, attachment: Attachment) -> Key | None:
        """Return the older route that prevents an attachment; None if there is none."""
        if route.connections:
            owner = self._connections.get((link.parent.key, attachment.listener), route.key)
            return None if owner == route.key else owner
        by_kind = self._hosts[link.parent.key, attachment.listener]
        rivals = (owners.oldest(attachment.hosts) for kind, owners in by_kind.items() if kind != route.key.kind)
        oldest = min(filter(None, rivals), key=lambda rival: rival.age, default=None)
        return oldest.key if oldest else None

    def _to_service(self, route: CompiledRoute, link: Link) -> Link:
        owners = [self._connections.setdefault(port, route.key) for port in link.ports]
        free = tuple(port for port, owner in zip(link.ports, owners, strict=True) if owner == route.key)
        if free:
            return link if len(free) == len(link.ports) else link._replace(ports=free)
        message = f"the older {owners[0]} already gets the connections to {link.ports[0]}; delete one of the two"
        refusal = Finding(route.key, Reason.CONFLICTED, link.parent.field, message, (owners[0],))
        return link._replace(ports=(), refusal=refusal)
