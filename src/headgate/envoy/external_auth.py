"""Render external authorization: a filter that calls the authorization server of a request's route (GEP-1494).

The filter's settings are in the routes: so new settings change no listener, and end no connection.
"""

from collections.abc import Iterable, Sequence
from functools import cache

from headgate.envoy import pb
from headgate.envoy.values import duration, other_texts
from headgate.model.routing import ExternalAuth

FILTER = "headgate.auth"
_LIMIT_MS = 10_000
"""How long a server may take to decide; then the request gets 403."""
_BUFFERED = 1024 * 1024
"""The bytes of a body that Envoy keeps by default while a server decides; it answers 413 to larger ones that it must keep."""
_NEVER_COPIED = ("connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")
"""Headers of the server's response that a backend never gets: they belong to the response's own message (RFC 9110, 7.6.1)."""


@cache
def auth_filter() -> pb.HttpFilter:
    """Return the filter. It does nothing until a route gives it a server.

    It is not disabled: Envoy reads only once which disabled filters a route enables, and filters before it may select another
    route, whose server would not be called.
    """
    skip = pb.XdsTypedExtension(name="skip", typed_config=pb.pack(pb.SkipFilter()))
    wrapped = pb.ExtensionWithMatcher(
        extension_config=pb.TypedExtensionConfig(name="composite", typed_config=pb.pack(pb.Composite())),
        xds_matcher=pb.XdsMatcher(on_no_match=pb.XdsMatcher.OnMatch(action=skip)),
    )
    return pb.HttpFilter(name=FILTER, typed_config=pb.pack(wrapped))


def enable(route: pb.Route, auth: ExternalAuth, cluster: str) -> None:
    """Make a route call an authorization server, whose cluster is named."""
    chosen = pb.ExecuteFilterAction(
        typed_config=pb.TypedExtensionConfig(name=FILTER, typed_config=pb.pack(_ext_authz(auth, cluster)))
    )
    action = pb.XdsTypedExtension(name=FILTER, typed_config=pb.pack(chosen))
    matcher = pb.ExtensionWithMatcherPerRoute(
        xds_matcher=pb.XdsMatcher(on_no_match=pb.XdsMatcher.OnMatch(action=action))
    )
    route.typed_per_filter_config[FILTER].CopyFrom(pb.pack(matcher))
    if auth.body > _BUFFERED:
        route.request_body_buffer_limit.CopyFrom(pb.UInt64Value(value=auth.body))


def _ext_authz(auth: ExternalAuth, cluster: str) -> pb.ExtAuthz:
    message = pb.ExtAuthz(
        transport_api_version=pb.ApiVersion.V3,
        validate_mutations=True,
        # The defaults of these rules keep the host and the pseudo-headers as they are.
        decoder_header_mutation_rules=pb.HeaderMutationRules(),
    )
    if auth.headers:
        message.allowed_headers.CopyFrom(_named(auth.headers))
    if auth.body:
        message.with_request_body.CopyFrom(pb.ExtAuthzBody(max_request_bytes=auth.body, allow_partial_message=True))
    if auth.protocol == "GRPC":
        service = pb.GrpcService(
            envoy_grpc=pb.GrpcService.EnvoyGrpc(cluster_name=cluster, skip_envoy_headers=True),
            timeout=duration(_LIMIT_MS),
        )
        message.grpc_service.CopyFrom(service)
        if auth.body:
            message.with_request_body.pack_as_bytes = True  # else a body that is not UTF-8 would be lost
        return message
    copied = _named(auth.response_headers) if auth.response_headers else _all_but(_NEVER_COPIED)
    server = pb.HttpUri(
        uri="http://authorization", cluster=cluster, timeout=duration(_LIMIT_MS)
    )  # the host is the request's
    http = pb.ExtAuthzHttpService(
        server_uri=server,
        path_prefix=f"/{auth.path}" if auth.path else "",
        authorization_response=pb.ExtAuthzResponse(allowed_upstream_headers=copied),
    )
    message.http_service.CopyFrom(http)
    return message


def _named(headers: Iterable[str]) -> pb.ListStringMatcher:
    return pb.ListStringMatcher(patterns=[pb.StringMatcher(exact=name) for name in headers])


def _all_but(headers: Sequence[str]) -> pb.ListStringMatcher:
    expression = pb.RegexMatcher(regex=other_texts(headers))
    return pb.ListStringMatcher(patterns=[pb.StringMatcher(safe_regex=expression)])
