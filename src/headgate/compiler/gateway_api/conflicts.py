"""Compare the attachments of routes with those of older routes.

Proxies can't distinguish the connections of two TCPRoutes, those for one server name of two TLSRoutes, or the datagrams of
two UDPRoutes. So the oldest route gets all of them; newer routes stay attached. The routes of one host are either HTTPRoutes or GRPCRoutes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from headgate.compiler.gateway_api.parents import AttachedRoute, Attachment, Link, Parents, Place, linked
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.host_names import fitting_names, matching_patterns
from headgate.resources.meta import Key
from headgate.shared_map import SharedMap


def without_conflicts(parents: Parents, attached: SharedMap[Key, AttachedRoute]) -> SharedMap[Key, AttachedRoute]:
    """Return the routes with only the attachments that older routes allow; the same mapping if they allow all."""
    older, changed = _OlderRoutes(), dict[Key, AttachedRoute]()
    for attached_route in sorted(attached.values(), key=lambda attached_route: attached_route.route.age):
        links = [older.compared(attached_route.route, link) for link in attached_route.links]
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
        self._connections: dict[tuple[Key, str, str] | Place, Key] = {}
        # the oldest route of connections, by Gateway, listener and host, or by Service port and clients
        self._hosts: defaultdict[tuple[Key, str], defaultdict[str, HostOwners]] = defaultdict(
            lambda: defaultdict(HostOwners)
        )  # by Gateway and listener, then by kind

    def compared(self, route: CompiledRoute, link: Link) -> Link:
        """Return a link after the comparison with these routes; add its route to them."""
        if route.connections is None:
            return self._by_host(route, link) if link.attachments else link
        return self._by_listener(route, link) if link.attachments else self._by_port(route, link)

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
        return link._replace(attachments=tuple(attachments), note=_shadowed(route, link, taken)) if taken else link

    def _by_port(self, route: CompiledRoute, link: Link) -> Link:
        """Return the link of a TCPRoute to a Service, without the ports that have an older TCPRoute for the same clients."""
        owners = {port: self._connections.setdefault(link.place(port), route.key) for port in link.ports}
        taken = {f"to {port}": owner for port, owner in owners.items() if owner != route.key}
        if not taken:
            return link
        free = tuple(port for port, owner in owners.items() if owner == route.key)
        return link._replace(ports=free, note=_shadowed(route, link, taken))


def _shadowed(route: CompiledRoute, link: Link, taken: Mapping[str, Key]) -> Finding:
    """Return the finding about a route of connections; `taken` has the older route for each place of connections, in words."""
    words = "datagrams" if route.key.kind == "UDPRoute" else "connections"
    facts = ", ".join(f"the older {owner} has all {words} {place}" for place, owner in taken.items())
    message = (
        f"{facts}, so this route gets none of them; add its backendRefs to the older route, or delete one of the two"
    )
    related = tuple(dict.fromkeys(taken.values()))
    return Finding(route.key, Reason.SHADOWED, link.parent.field, message, related)
