"""Compare the attachments of routes with those of older routes.

Proxies can't distinguish the connections of two TCPRoutes, those for one server name of two TLSRoutes, or the datagrams of
two UDPRoutes. So the oldest route gets all of them; newer routes stay attached. The routes of one host are either HTTPRoutes or GRPCRoutes.
The routes of a Service port are of one kind, whatever their age (GEP-1294).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from headgate.compiler.gateway_api.links import Attachment, Link, Place
from headgate.compiler.gateway_api.parents import AttachedRoute, Parents, linked
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.host_names import fitting_names, matching_patterns
from headgate.resources.meta import Key
from headgate.shared_map import SharedMap

_PRECEDENCE = ("GRPCRoute", "HTTPRoute", "TLSRoute", "TCPRoute")
"""The kinds of routes of a Service port, in order of precedence."""


def without_conflicts(parents: Parents, attached: SharedMap[Key, AttachedRoute]) -> SharedMap[Key, AttachedRoute]:
    """Return the routes with only the attachments that older routes allow; the same mapping if they allow all."""
    by_age = sorted(attached.values(), key=lambda attached_route: attached_route.route.age)
    older, changed = _OlderRoutes(_preferred(by_age)), dict[Key, AttachedRoute]()
    for attached_route in by_age:
        links = [older.compared(attached_route.route, link) for link in attached_route.links]
        if any(link is not before for link, before in zip(links, attached_route.links, strict=True)):
            changed[attached_route.route.key] = linked(parents, attached_route.route, links)
    return attached.edited(changed)


def _preferred(by_age: Iterable[AttachedRoute]) -> Mapping[Place, Key]:
    """Return the oldest route of the preferred kind at each Service port, for all clients or for those of a namespace."""
    preferred: dict[Place, Key] = {}
    for route, links, *_ in by_age:
        for place in (link.place(port) for link in links if route.usable for port in link.ports):
            before = preferred.setdefault(place, route.key)
            if _PRECEDENCE.index(route.key.kind) < _PRECEDENCE.index(before.kind):
                preferred[place] = route.key
    return preferred


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
    """The hosts, listeners and Service ports of the routes that are older than the current one.

    `preferred` has the oldest route of the only kind that applies to a Service port.
    """

    def __init__(self, preferred: Mapping[Place, Key]) -> None:
        self._preferred = preferred
        self._connections: dict[tuple[Key, str, str] | tuple[Place, str], Key] = {}
        # the oldest route of connections, by Gateway, listener and host, or by Service port, clients and server name
        self._hosts: defaultdict[tuple[Key, str], defaultdict[str, HostOwners]] = defaultdict(
            lambda: defaultdict(HostOwners)
        )  # by Gateway and listener, then by kind

    def compared(self, route: CompiledRoute, link: Link) -> Link:
        """Return a link after the comparison with these routes; add its route to them."""
        if not link.attachments:
            of_kind = self._by_kind(route, link)
            return of_kind if route.connections is None else self._by_port(route, of_kind)
        return self._by_host(route, link) if route.connections is None else self._by_listener(route, link)

    def _by_host(self, route: CompiledRoute, link: Link) -> Link:
        """Return the allowed part of a link to a Gateway, or the link with a refusal if no part is allowed."""
        rivals = [self._rival(route, link, attachment) for attachment in link.attachments]
        free = tuple(attachment for attachment, rival in zip(link.attachments, rivals, strict=True) if rival is None)
        for attachment in free if route.usable else ():
            self._hosts[link.parent.key, attachment.listener][route.key.kind].add(route, attachment.hosts)
        if free:
            return link if len(free) == len(link.attachments) else link._replace(attachments=free)
        listener = link.attachments[0].listener
        message = f"the older {rivals[0]} already has these hosts of listener {listener}; change one of the two routes"
        return link._replace(attachments=(), refusal=Finding(route.key, Reason.CONFLICTED, link.parent.field, message))

    def _rival(self, route: CompiledRoute, link: Link, attachment: Attachment) -> Key | None:
        """Return the older route that prevents an attachment; None if there is none."""
        by_kind = self._hosts[link.parent.key, attachment.listener]
        rivals = (owners.oldest(attachment.hosts) for kind, owners in by_kind.items() if kind != route.key.kind)
        oldest = min(filter(None, rivals), key=lambda rival: rival.age, default=None)
        return oldest.key if oldest else None

    def _by_listener(self, route: CompiledRoute, link: Link) -> Link:
        """Return the link of a route of connections or datagrams to a Gateway, with a note about connections that an older route has."""
        attachments: list[Attachment] = []
        taken: dict[str, Key] = {}
        for attachment in link.attachments:
            place = link.parent.key, attachment.listener
            owners = {host: self._connections.setdefault((*place, host), route.key) for host in attachment.hosts}
            older = {host: owner for host, owner in owners.items() if owner != route.key}
            attachments.append(attachment._replace(is_served=len(older) < len(owners)))
            for host, owner in older.items():
                name = f"for {host} " if route.hostnames else ""
                taken[f"{name}of listener {attachment.listener}"] = owner
        if not taken:
            return link
        return link._replace(attachments=tuple(attachments), notes=(*link.notes, _shadowed(route, link, taken)))

    def _by_kind(self, route: CompiledRoute, link: Link) -> Link:
        """Return the link to a Service without the ports that have routes of a preferred kind for the same clients.

        If no port remains, the link has a refusal.
        """
        preferred = {port: self._preferred.get(link.place(port), route.key) for port in link.ports}
        rivals = {port: rival for port, rival in preferred.items() if rival.kind != route.key.kind}
        if not rivals or not route.usable:
            return link
        facts = ", ".join(f"{port} has {rival}" for port, rival in rivals.items())
        kinds = " and ".join(dict.fromkeys(f"{rival.kind}s" for rival in rivals.values()))
        message = (
            f"{facts}; a Service port has routes of one kind, and {kinds} take precedence over {route.key.kind}s. "
            "Use routes of the same kind, or other ports"
        )
        related = tuple(dict.fromkeys(rivals.values()))
        conflict = Finding(route.key, Reason.CONFLICTED, link.parent.field, message, related)
        if free := tuple(port for port in link.ports if port not in rivals):
            return link._replace(ports=free, notes=(*link.notes, conflict))
        return link._replace(ports=(), refusal=conflict)

    def _by_port(self, route: CompiledRoute, link: Link) -> Link:
        """Return the link of a TCPRoute or TLSRoute to a Service, without the ports where older routes have all its connections."""
        owners = {
            (port, name): self._connections.setdefault((link.place(port), name), route.key)
            for port in link.ports
            for name in link.names
        }
        taken = {
            f"for {name} to {port}" if name else f"to {port}": owner
            for (port, name), owner in owners.items()
            if owner != route.key
        }
        if not taken:
            return link
        free = tuple(dict.fromkeys(port for (port, _), owner in owners.items() if owner == route.key))
        return link._replace(ports=free, notes=(*link.notes, _shadowed(route, link, taken)))


def _shadowed(route: CompiledRoute, link: Link, taken: Mapping[str, Key]) -> Finding:
    """Return the finding about a route of connections; `taken` has the older route for each place of connections, in words."""
    words = "datagrams" if route.key.kind == "UDPRoute" else "connections"
    facts = ", ".join(f"the older {owner} has all {words} {place}" for place, owner in taken.items())
    message = (
        f"{facts}, so this route gets none of them; add its backendRefs to the older route, or delete one of the two"
    )
    related = tuple(dict.fromkeys(taken.values()))
    return Finding(route.key, Reason.SHADOWED, link.parent.field, message, related)
