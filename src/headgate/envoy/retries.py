"""Which requests a proxy repeats (D30; RFC 9110, 9.2.2).

An idempotent request is repeated if its connection ends before a response: most often the server closed an idle connection
while the proxy sent the request. All other requests are repeated only if the application has not received them.

Envoy's conditions belong to a route, so requests that are not idempotent have a route of their own, before the common one.
A filter that sets the conditions by method would cost 4 % of a proxy's CPU time.
"""

from collections.abc import Collection, Iterator

from headgate.envoy import pb
from headgate.envoy.upstream_tls import UNREACHED_HEADER

IDEMPOTENT = ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "QUERY")
"""The methods whose requests a proxy may repeat (RFC 9110, 9.2.2; RFC 10008)."""
RETRIES = 2
UNSENT = "connect-failure,refused-stream,reset-before-request,retriable-headers"
"""The errors after which Envoy repeats every request. In all of them, the application has not received the request."""
RESET = "reset"
"""The error after which Envoy repeats an idempotent request: the connection or the stream ended before a response."""


def retry_policy() -> pb.RetryPolicy:
    """Return the policy of a route that repeats only what the application has not received."""
    return pb.RetryPolicy(
        retry_on=UNSENT,
        retriable_headers=[pb.HeaderMatcher(name=UNREACHED_HEADER, present_match=True)],
        num_retries=pb.UInt32Value(value=RETRIES),
    )


def by_method(route: pb.Route, methods: Collection[str] = ()) -> Iterator[pb.Route]:
    """Yield a route for requests that are not idempotent, and one for those that are; `route` has the policy `retry_policy`.

    `methods` are those of its match; empty means every method. Where an attempt has a timeout, there is one route only, because
    Envoy would repeat requests after a timeout too.
    """
    idempotent = set(methods) & set(IDEMPOTENT) if methods else set(IDEMPOTENT)
    unsafe = set(methods) - set(IDEMPOTENT) if methods else {"POST"}
    if not route.HasField("route") or route.route.retry_policy.HasField("per_try_timeout") or not idempotent:
        yield route
        return
    if unsafe:
        first = pb.Route.FromString(route.SerializeToString())
        first.match.headers.extend(
            pb.HeaderMatcher(name=":method", string_match=pb.StringMatcher(exact=method), invert_match=True)
            for method in IDEMPOTENT
        )
        yield first
    policy = route.route.retry_policy
    policy.retry_on = f"{policy.retry_on},{RESET}" if policy.retry_on else RESET
    yield route
