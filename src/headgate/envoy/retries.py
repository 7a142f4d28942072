"""Which requests a proxy repeats (D30; RFC 9110, 9.2.2).

An idempotent request is repeated if its connection ends before a response: most often the server closed an idle connection
while the proxy sent the request. All other requests are repeated only if the application has not received them.

Envoy's conditions belong to a route, so requests that are not idempotent have a route of their own, before the common one.
A policy of the user (`Retry`) adds statuses, which apply to all methods, and conditions, which apply to idempotent ones.

A filter that sets the conditions by method would cost 4 % of a proxy's CPU time.
"""

from collections.abc import Collection, Iterator

from headgate.envoy import pb
from headgate.envoy.upstream_tls import UNREACHED_HEADER
from headgate.envoy.values import duration
from headgate.model.resilience import Retry

IDEMPOTENT = ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "QUERY")
"""The methods whose requests a proxy may repeat (RFC 9110, 9.2.2; RFC 10008)."""
RETRIES = 2
UNPROCESSED = "refused-stream,reset-before-request"
"""The errors on an open connection after which the application has not processed the request (RFC 9113, 8.7)."""
UNSENT = f"connect-failure,{UNPROCESSED},retriable-headers"
"""The errors after which Envoy repeats every request. In all of them, the application has not received the request."""
RESET = "reset"
"""The error after which Envoy repeats an idempotent request: the connection or the stream ended before a response."""


def retry_policy(retry: Retry | None = None) -> pb.RetryPolicy:
    """Return the policy of requests that are not idempotent: it repeats unsent requests, and what `retry` names by status."""
    policy = pb.RetryPolicy(
        retry_on=",".join(_of_any_method(retry)),
        retriable_headers=[pb.HeaderMatcher(name=UNREACHED_HEADER, present_match=True)],
        num_retries=pb.UInt32Value(value=retry.retries if retry else RETRIES),
    )
    if retry:
        policy.retriable_status_codes.extend(retry.codes)
        policy.retry_back_off.base_interval.CopyFrom(duration(retry.backoff))
        policy.retry_back_off.max_interval.CopyFrom(duration(retry.max_backoff))
    return policy


def _of_any_method(retry: Retry | None) -> Iterator[str]:
    yield UNSENT
    if retry and retry.codes:
        yield "retriable-status-codes"
    yield from retry.grpc if retry else ()


def by_method(route: pb.Route, methods: Collection[str] = (), retry: Retry | None = None) -> Iterator[pb.Route]:
    """Yield a route for requests that are not idempotent, and one for those that are; `route` has the policy `retry_policy`.

    `methods` has those of its match; empty means every method. Where an attempt has a timeout and no `retry` says what to
    repeat, there is one route only, because Envoy would repeat requests after a timeout too.
    """
    conditions = retry.conditions if retry else _default_conditions(route)
    idempotent = set(methods) & set(IDEMPOTENT) if methods else set(IDEMPOTENT)
    unsafe = set(methods) - set(IDEMPOTENT) if methods else {"POST"}
    if not route.HasField("route") or not conditions or not idempotent:
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
    policy.retry_on = ",".join(filter(None, (policy.retry_on, *conditions)))
    yield route


def _default_conditions(route: pb.Route) -> tuple[str, ...]:
    return () if route.route.retry_policy.HasField("per_try_timeout") else (RESET,)
