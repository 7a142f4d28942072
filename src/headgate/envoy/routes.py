"""Render route configurations and the scopes that select them."""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import NamedTuple

from headgate.envoy import backend_rows, cors, draw, external_auth, pb, sessions, tap
from headgate.envoy.filter_state import enable, path_matcher
from headgate.envoy.http_connections import route_configuration
from headgate.envoy.names import MISSING
from headgate.envoy.planned_routes import FINEST, ClusterWeight, MirrorPlan, PlannedRoute, RoutePlan
from headgate.envoy.retries import by_method, retry_policy
from headgate.envoy.route_filters import (
    header_fields,
    merge,
    omit_default_port,
    path_fields,
    redirect_action,
    rewritten_host,
)
from headgate.envoy.sticky import hash_policies, issue_cookie, split_by_cookie
from headgate.envoy.traffic_stats import route_name_without_cluster
from headgate.envoy.values import duration
from headgate.model.requests import NO_FILTERS, Filters, Header, Match, Path, PathEdit, Text
from headgate.model.sessions import PersistentSession

HOST_SELECTION_ATTEMPTS = 5
NOT_FOUND = 404
ORIGINAL_ADDRESS = "x-headgate-address"
"""A request header inside a transparent sidecar: the address and port of the connection's original destination."""
_ANYTHING = (Match(), Match(path=Path(kind="prefix", value="/")))
_UNMATCHED = "headgate: no route of %s matches this request\n"


def routes(plan: RoutePlan) -> pb.RouteConfiguration:
    """Return the routes of one Service port. Every host is accepted, as the listener or scope selected the Service.

    The last route answers unmatched requests with 404. Otherwise their clients would get the answer for
    unknown hosts (`listeners.proxy_listener`).
    """
    host = virtual_host(plan.name, "*", plan.routes, parent=plan.name)
    if not any(planned.match in _ANYTHING for planned in plan.routes):
        text = _UNMATCHED % plan.name.partition("/")[2]
        answer = pb.DirectResponseAction(status=NOT_FOUND, body=pb.DataSource(inline_string=text))
        host.routes.append(pb.Route(match=pb.RouteMatch(prefix=""), direct_response=answer))
    return route_configuration(plan.name, [host])


def address_scope(
    name: str, host: str, port: int, plan: RoutePlan, named: tuple[tuple[tuple[str, ...], RoutePlan], ...] = ()
) -> pb.ScopedRouteConfiguration:
    """Return the routes for redirected connections to one address, as a scope with an inline route configuration.

    `named` has hosts with routes of their own.
    """
    configuration = routes(plan)
    for hosts, own in named:
        host_routes = virtual_host("named", "*", own.routes, parent=own.name)
        del host_routes.domains[:]
        host_routes.domains.extend(hosts)
        configuration.virtual_hosts.append(host_routes)
    configuration.request_headers_to_remove.append(ORIGINAL_ADDRESS)
    configuration.ClearField("name")
    # The name is short, because a proxy has thousands of these virtual hosts; the scope has the full name.
    configuration.virtual_hosts[0].name = "all"
    configuration.validate_clusters.CopyFrom(pb.BoolValue(value=False))  # false by default, except in inline routes
    key = f"[{ip_address(host)}]:{port}" if ":" in host else f"{host}:{port}"
    return inline_scope(name, key, configuration)


def virtual_host(name: str, domain: str, planned_routes: Iterable[PlannedRoute], *, parent: str) -> pb.VirtualHost:
    """Return the virtual host of a domain, or of `*`; requests that match no route get 404.

    `parent` names the Service port or Gateway port of the routes.
    """
    return pb.VirtualHost(
        name=name,
        domains=[domain] if domain == "*" else [domain, f"{domain}."],
        routes=[
            route
            for planned in planned_routes
            for session_row in sessions.rows(planned)
            for backend_row in backend_rows.rows(session_row)
            for row in cors.rows(backend_row)
            for part in split_by_cookie(row)
            for route in by_method(_route(part, parent), part.match.methods, part.retry)
        ],
    )


def _route(planned: PlannedRoute, parent: str) -> pb.Route:
    metadata = tap.route_metadata(planned.origin, planned.name) if planned.origin else None
    message = pb.Route(match=_match(planned.match), metadata=metadata, **header_fields(_whole(planned)))
    if not planned.clusters or any(share.cluster == MISSING for share in planned.clusters):
        message.name = route_name_without_cluster(parent)
    if planned.below < FINEST:
        message.match.runtime_fraction.CopyFrom(_runtime_fraction(planned.below, FINEST))
    if planned.reads_path:
        enable(message)
        draw.enable_later(message)
    if planned.draws:
        draw.enable(message, [share.weight for share in planned.clusters])
    _enable_filters(message, planned)
    if planned.redirect:
        message.redirect.CopyFrom(redirect_action(planned.redirect, planned.match.path))
        omit_default_port(message, planned.redirect)
    elif planned.clusters:
        message.route.CopyFrom(_action(planned))
        if planned.sticky and planned.issues_cookie:
            issue_cookie(message, planned.sticky)
    else:
        message.direct_response.CopyFrom(pb.DirectResponseAction(status=planned.status))
    return message


def _enable_filters(message: pb.Route, planned: PlannedRoute) -> None:
    if session := _session(planned):
        sessions.enable(message.typed_per_filter_config, session, planned)
    if planned.cors:
        cors.enable(message, planned.cors, allows_origin=planned.allows_origin)
    if planned.external_auth:
        external_auth.enable(message, planned.external_auth, planned.auth_cluster)


def _match(match: Match) -> pb.RouteMatch:
    headers = [_header(header) for header in match.headers]
    if match.methods:
        methods = Text(value="|".join(match.methods), regex=len(match.methods) > 1)
        headers.insert(0, _header(Header(name=":method", text=methods)))
    query = [
        pb.QueryParameterMatcher(name=parameter.name, string_match=_text(parameter.text)) for parameter in match.query
    ]
    message = pb.RouteMatch(
        headers=headers, query_parameters=query, filter_state=[path_matcher(path) for path in match.other_paths]
    )
    kind, value = (match.path.kind, match.path.value) if match.path else ("prefix", "/")
    if kind == "exact":
        message.path = value
    elif kind == "regex":
        message.safe_regex.CopyFrom(_regex(value))
    elif segments := value.rstrip("/"):
        message.path_separated_prefix = segments
    else:
        message.prefix = "/"
    return message


def _header(header: Header) -> pb.HeaderMatcher:
    return pb.HeaderMatcher(name=header.name, string_match=_text(header.text))


def _regex(pattern: str) -> pb.RegexMatcher:
    """Return a regex matcher. Envoy rejects the whole route table for an empty expression, so `(?:)` stands for it."""
    return pb.RegexMatcher(regex=pattern or "(?:)")


def _text(text: Text) -> pb.StringMatcher:
    if text.regex:
        return pb.StringMatcher(safe_regex=_regex(text.value))
    return pb.StringMatcher(exact=text.value)


def _action(planned: PlannedRoute) -> pb.RouteAction:
    first, *more = planned.clusters
    pushed_down = planned.filters if _filtered(planned) else NO_FILTERS
    action = pb.RouteAction(
        timeout=duration(planned.timeouts.request),  # 0 means no timeout: applications limit their own requests
        retry_policy=_retries(planned),
        request_mirror_policies=[_mirror_policy(mirror) for mirror in planned.mirrors],
        host_rewrite_literal=rewritten_host(_whole(planned)) or None,
        hash_policy=hash_policies(planned),
        **path_fields(_path(planned), planned.match.path),
    )
    if any(share.cluster == MISSING for share in planned.clusters):
        action.cluster_not_found_response_code = pb.RouteAction.ClusterNotFoundResponseCode.INTERNAL_SERVER_ERROR
    if more or planned.sticky or first.filters != NO_FILTERS:
        weighted = pb.WeightedCluster(
            clusters=[_share(share, pushed_down, planned) for share in planned.clusters],
            use_hash_policy=pb.BoolValue(value=True) if planned.sticky else None,
            header_name=draw.HEADER if planned.draws else None,
        )
        action.weighted_clusters.CopyFrom(weighted)
        if planned.draws:
            action.retry_policy.retry_priority.CopyFrom(draw.standby_first())
    else:
        action.cluster = first.cluster
    return action


class EnvoyFraction(NamedTuple):
    """The fraction `numerator`/`denominator`, with one of Envoy's three denominators."""

    numerator: int
    denominator: int


def fraction(mirror: MirrorPlan) -> EnvoyFraction:
    """Return the fraction of requests to mirror, with one of Envoy's denominators (R45, R46).

    It is exact in hundredths, ten-thousandths or millionths if possible, else rounded to millionths.
    """
    for denominator in (100, 10_000):
        if mirror.numerator * denominator % mirror.denominator == 0:
            return EnvoyFraction(mirror.numerator * denominator // mirror.denominator, denominator)
    return EnvoyFraction((2 * mirror.numerator * FINEST + mirror.denominator) // (2 * mirror.denominator), FINEST)


def _mirror_policy(mirror: MirrorPlan) -> pb.RouteAction.RequestMirrorPolicy:
    """Return the mirror policy; mirrored requests keep their Host header unless the mirror sets another."""
    return pb.RouteAction.RequestMirrorPolicy(
        cluster=mirror.cluster,
        runtime_fraction=_runtime_fraction(*fraction(mirror)),
        disable_shadow_host_suffix_append=True,
        host_rewrite_literal=mirror.host or None,
    )


def _runtime_fraction(numerator: int, denominator: int) -> pb.RuntimeFractionalPercent:
    kinds = pb.FractionalPercent.DenominatorType
    kind = {100: kinds.HUNDRED, 10_000: kinds.TEN_THOUSAND, FINEST: kinds.MILLION}[denominator]
    return pb.RuntimeFractionalPercent(default_value=pb.FractionalPercent(numerator=numerator, denominator=kind))


def _path(planned: PlannedRoute) -> PathEdit | None:
    """Return the path change of a route or its only share. Shares with changes of their own have rows (`backend_rows`)."""
    rewrites = (planned.clusters[0].filters.rewrite if len(planned.clusters) == 1 else None, planned.filters.rewrite)
    return next((rewrite.path for rewrite in rewrites if rewrite and rewrite.path), None)


def _whole(planned: PlannedRoute) -> Filters:
    """Return the filters to render on the route; none if the filters of each share already include them."""
    return NO_FILTERS if _filtered(planned) else planned.filters


def _filtered(planned: PlannedRoute) -> bool:
    return any(share.filters != NO_FILTERS for share in planned.clusters)


def _session(planned: PlannedRoute) -> PersistentSession | None:
    """Return the sessions of a route or of its only share."""
    return (
        planned.clusters[0].session if len(planned.clusters) == 1 and planned.clusters[0].session else planned.session
    )


def _share(share: ClusterWeight, pushed_down: Filters, planned: PlannedRoute) -> pb.WeightedCluster.ClusterWeight:
    filters = merge(pushed_down, share.filters)
    message = pb.WeightedCluster.ClusterWeight(
        name=share.cluster,
        weight=pb.UInt32Value(value=share.weight),
        host_rewrite_literal=rewritten_host(filters) or None,
        **header_fields(filters),
    )
    if share.session and len(planned.clusters) > 1:
        sessions.enable(message.typed_per_filter_config, share.session, planned)
    return message


def _retries(planned: PlannedRoute) -> pb.RetryPolicy:
    policy = retry_policy(planned.retry)
    if planned.timeouts.backend:
        policy.per_try_timeout.CopyFrom(duration(planned.timeouts.backend))
    policy.retry_host_predicate.append(
        pb.RetryPolicy.RetryHostPredicate(name="previous_hosts", typed_config=pb.pack(pb.PreviousHostsPredicate()))
    )
    policy.host_selection_retry_max_attempts = HOST_SELECTION_ATTEMPTS
    return policy


def host_scope(name: str, authority: str, routes_name: str) -> pb.ScopedRouteConfiguration:
    """Return the scope that maps requests with an `authority` to the named routes."""
    return pb.ScopedRouteConfiguration(name=name, route_configuration_name=routes_name, key=_key(authority))


def inline_scope(name: str, key: str, configuration: pb.RouteConfiguration) -> pb.ScopedRouteConfiguration:
    """Return the scope of a `key` with its routes in itself."""
    return pb.ScopedRouteConfiguration(name=name, route_configuration=configuration, key=_key(key))


def _key(text: str) -> pb.ScopedRouteConfiguration.Key:
    fragment = pb.ScopedRouteConfiguration.Key.Fragment(string_key=text)
    return pb.ScopedRouteConfiguration.Key(fragments=[fragment])
