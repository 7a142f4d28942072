"""The routes of a host as locations: one for each way to answer a request, found by variables."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from headgate import formatting
from headgate.model.evaluate import UNAVAILABLE
from headgate.model.requests import Filters, Redirect, Rewrite
from headgate.model.routing import Mirror, Protocol, Route, Split
from headgate.model.sanitizing import NOT_FOUND
from headgate.render.edits import path_edits, redirect_origin
from headgate.render.nginx.conditions import AUTHORITY, Conditions
from headgate.render.nginx.headers import HeaderFilters
from headgate.render.nginx.syntax import Variables, block, escaped, pattern, template
from headgate.render.nginx.targets import edited_target
from headgate.render.nginx.upstreams import Upstreams
from headgate.render.omissions import Collector, NotExpressible, OmissionReason, Place
from headgate.render.proxy_ports import PortHost, ProxyPort, Selection
from headgate.render.route_omissions import add_sticky, place_of, service_place
from headgate.render.shares import BackendGroup, Shares, grouped, parts

WHOLE = 10_000  # split_clients has percentages with two decimals
COPY_SECONDS, COPY_CONNECT_SECONDS = 10, 1  # as for the copies of headgate's own proxies
EMPTY = '""'


class Output(NamedTuple):
    """Where a renderer adds its results, besides the lines that it returns."""

    variables: Variables
    upstreams: Upstreams
    collector: Collector


class HostLocations:
    """Renders the routes of one host. `tag` distinguishes its upstreams from those of all other hosts."""

    def __init__(self, selection: Selection, port: ProxyPort, host: PortHost, output: Output, tag: str) -> None:
        self._selection = selection
        self._host = host
        self._port = port
        self._variables, self._upstreams, self._collector = output
        self._tag = tag
        self._statuses: set[int] = {UNAVAILABLE}

    def lines(self) -> Iterator[str]:
        """Yield the locations; the first receives every request of a client and selects another one."""
        entries: list[tuple[tuple[str, ...], str]] = []
        locations: list[str] = []
        for index, route in enumerate(self._host.routes):
            conditions = self._conditions(route)
            if conditions is None:
                continue
            name, lines = self._route(f"route-{index + 1}", route)
            entries.append((conditions, name))
            locations += lines
            if not conditions:
                break  # no request reaches the next routes
        yield from block("location /", [f"error_page 418 = {self._selected(entries)};", "return 418;"])
        yield from locations
        for status in sorted(self._statuses):
            yield f"location @status-{status} {{ return {status}; }}"

    def _place(self, route: Route) -> Place:
        return place_of(self._host, route)

    def _conditions(self, route: Route) -> tuple[str, ...] | None:
        try:
            return Conditions(self._variables, edge=self._host.edge).of(route.match)
        except NotExpressible as error:
            self._collector.add_error(self._place(route), error)
            return None

    def _selected(self, entries: Sequence[tuple[tuple[str, ...], str]]) -> str:
        """Return the value that names the location of the first route whose conditions are all met."""
        default = f"@status-{NOT_FOUND}"
        if entries and not entries[-1][0]:
            *entries, (_, default) = entries
        else:
            self._statuses.add(NOT_FOUND)
        if not entries:
            return default
        bits = list(dict.fromkeys(bit for conditions, _ in entries for bit in conditions))
        tests = [(pattern(rf"\A{_bits(bits, conditions)}"), name) for conditions, name in entries]
        return self._variables.mapped("route", self._variables.joined(bits), tests, default)

    def _route(self, name: str, route: Route) -> tuple[str, list[str]]:
        """Return the value that names the location for the requests of a route, and its locations."""
        if route.redirect is not None:
            return f"@{name}", self._redirect(name, route, route.redirect)
        add_sticky(self._collector, self._place(route), route.split, proxy="nginx", call="request")
        shares = grouped(route.split, self._selection.endpoints, self._selection.protocols)
        if not (shares.groups or shares.redirected):
            return self._failing(name, route, shares)
        mirrors = [mirror for mirror in route.mirrors if mirror.numerator]
        if len(shares.groups) == 1 and not shares.redirected and not (mirrors and shares.failing):
            only = shares.groups[0]
            self._statuses |= shares.failing.keys()
            upstream = self._upstreams.add(f"headgate_{self._tag}_{name}", only.targets, shares.failing)
            return f"@{name}", list(self._backends(name, route, only, upstream))
        return self._drawn(name, route, shares)

    def _failing(self, name: str, route: Route, shares: Shares) -> tuple[str, list[str]]:
        """Return the location of a route whose requests all fail."""
        values = [(weight, f"@{name}-{status}") for status, weight in sorted(shares.failing.items())]
        lines = [
            line
            for status in sorted(shares.failing)
            for line in block(f"location @{name}-{status}", [f"return {status};"])
        ]
        return self._random(name, values, self._place(route)), lines

    def _drawn(self, name: str, route: Route, shares: Shares) -> tuple[str, list[str]]:
        """Return the locations of a route whose shares need several; each request gets one by a random number."""
        lines: list[str] = []
        values: list[tuple[int, str]] = []
        for index, group in enumerate(shares.groups):
            group_name = f"{name}-{index + 1}"
            upstream = self._upstreams.add(f"headgate_{self._tag}_{group_name}", group.targets, {})
            lines += self._backends(group_name, route, group, upstream)
            values.append((group.weight, f"@{group_name}"))
        for index, share in enumerate(shares.redirected, len(shares.groups)):
            lines += self._redirect(f"{name}-{index + 1}", route, share.redirect)
            values.append((share.weight, f"@{name}-{index + 1}"))
        if shares.failing:
            _, failing = self._failing(name, route, shares)
            lines += failing
            values += [(weight, f"@{name}-{status}") for status, weight in sorted(shares.failing.items())]
        return self._random(name, values, self._place(route)), lines

    def _random(self, name: str, values: Sequence[tuple[int, str]], place: Place) -> str:
        if len(values) == 1:
            return values[0][1]
        numbers, exact = parts([weight for weight, _ in values], WHOLE)
        if not exact:
            shown = " : ".join(formatting.share(Fraction(number, WHOLE)) for number in numbers)
            message = f"nginx draws these shares with two decimals: {shown}"
            self._collector.add(place, "weights", OmissionReason.ROUNDED_SHARE, message)
        drawn = [(number, value) for number, (_, value) in zip(numbers, values, strict=True) if number]
        return self._variables.drawn(f"share_{self._tag}_{name.replace('-', '_')}", drawn[:-1], drawn[-1][1])

    def _backends(self, name: str, route: Route, group: BackendGroup, upstream: str) -> Iterator[str]:
        """Yield the location that forwards requests to a group of backends, and the locations of their copies."""
        place, filters = self._place(route), (route.filters, group.filters)
        module = "grpc" if group.protocol is Protocol.HTTP2 else "proxy"
        headers = HeaderFilters(self._variables, self._collector, place)
        if group.protocol is Protocol.HTTP_ANY:
            self._name_downgrades(group)
        lines, copies = list[str](), list[str]()
        for index, mirror in enumerate(mirror for mirror in route.mirrors if mirror.numerator):
            copy = f"copy-{name}-{index + 1}"
            if copy_lines := list(self._copy(copy, mirror, route, filters)):
                copies += copy_lines
                lines.append(f"mirror {copy};")
        lines += headers.of_requests(module, filters, edge=self._host.edge)
        lines += headers.of_responses(module, filters)
        lines += self._timeouts(module, route)
        if module == "grpc":
            if path_edits(filters):
                message = "nginx sends HTTP/2 backends the path of the client"
                self._collector.add(place, "path rewrite", OmissionReason.FILTER, message)
            lines.append(f"grpc_pass grpc://{upstream};")
        else:
            lines.append(f"proxy_pass http://{upstream}{self._target(route, filters)};")
        yield from block(f"location @{name}", lines)
        yield from copies

    def _name_downgrades(self, group: BackendGroup) -> None:
        for target in group.targets:
            message = "nginx calls the backend with HTTP/1.1, also for clients with HTTP/2"
            self._collector.add(service_place(target.ref), "", OmissionReason.PROTOCOL, message)

    def _target(self, route: Route, filters: Sequence[Filters]) -> str:
        edits = path_edits(filters)
        if len(edits) > 1 and edits[-1].kind == "prefix":
            message = "the path is replaced twice; nginx applies only the last replacement"
            self._collector.add(self._place(route), "path rewrite", OmissionReason.FILTER, message)
        return edited_target(self._variables, edits[-1] if edits else None, route.match.path)

    def _timeouts(self, module: str, route: Route) -> Iterator[str]:
        if limit := route.timeouts.shortest:
            message = "nginx limits each pause of a backend, not the time of the complete response"
            self._collector.add(self._place(route), f"timeout {limit} ms", OmissionReason.TIMEOUT, message)
            yield f"{module}_read_timeout {limit}ms;"

    def _copy(self, name: str, mirror: Mirror, route: Route, filters: Sequence[Filters]) -> Iterator[str]:
        """Yield the location that sends copies to a mirror; nothing if nginx can't send any."""
        place = self._place(route)
        what = f"mirror to {mirror.ref}"
        shares = grouped(Split(targets=mirror.targets), self._selection.endpoints, self._selection.protocols)
        if any(group.protocol is Protocol.HTTP2 for group in shares.groups):
            message = "nginx sends copies with HTTP/1.1 only; this mirror gets none"
            self._collector.add(place, what, OmissionReason.COPY_PROTOCOL, message)
            return
        targets = [target for group in shares.groups for target in group.targets]
        if not targets:
            return
        host = next((target.filters.rewrite.hostname for target in mirror.targets[:1] if target.filters.rewrite), "")
        lines = []
        if mirror.numerator < mirror.denominator:
            fraction = Fraction(mirror.numerator, mirror.denominator)
            part = round(fraction * WHOLE)
            if Fraction(part, WHOLE) != fraction:
                message = (
                    f"nginx copies {formatting.share(Fraction(part, WHOLE))} of the requests instead of {fraction}"
                )
                self._collector.add(place, what, OmissionReason.ROUNDED_SHARE, message)
            if not part:
                return
            drawn = self._variables.drawn(f"copied_{self._tag}_{name.replace('-', '_')}", [(part, '"1"')], EMPTY)
            lines.append(f"if ({drawn} = {EMPTY}) {{ return 204; }}")
        upstream = self._upstreams.add(f"headgate_{self._tag}_{name}", targets, shares.failing)
        headers = HeaderFilters(self._variables, self._collector, place)
        lines += headers.of_requests("proxy", (*filters, *_with_host(host)), edge=self._host.edge)
        lines.append(f"proxy_connect_timeout {COPY_CONNECT_SECONDS}s;")
        lines.append(f"proxy_read_timeout {COPY_SECONDS}s;")
        lines.append(f"proxy_pass http://{upstream}{self._target(route, filters)};")
        yield from block(f"location = {name}", lines)

    def _redirect(self, name: str, route: Route, redirect: Redirect) -> list[str]:
        """Return the location that answers with a redirect (`model.applied_filters.redirect_location`)."""
        host = escaped(redirect.hostname) or self._requested_host()
        target = edited_target(self._variables, redirect.path, route.match.path)
        url = template(f"{redirect_origin(redirect, host, self._port)}{target}")
        return list(block(f"location @{name}", [f"return {redirect.status} {url};"]))

    def _requested_host(self) -> str:
        """Return the variable with the host of the request, without its port."""
        without_port = (pattern(r"\A(?<headgate_rest>.*):\d+\z"), "$headgate_rest")
        return self._variables.mapped("host", AUTHORITY, [without_port], AUTHORITY)


def _bits(bits: Sequence[str], required: Sequence[str]) -> str:
    """Return the expression for bits of which the wanted ones are 1."""
    text, skipped = "", 0
    for bit in bits:
        if bit not in required:
            skipped += 1
            continue
        text += (f".{{{skipped}}}" if skipped else "") + "1"
        skipped = 0
    return text


def _with_host(host: str) -> Sequence[Filters]:
    return [Filters(rewrite=Rewrite(hostname=host))] if host else []
