"""The settings of a route about failures of endpoints, in words, for `explain` and `plan`."""

from collections.abc import Iterator

from headgate.durations import formatted
from headgate.model.resilience import DEFAULT, Ejection, Resilience, Retry
from headgate.model.routing import Route


def words(route: Route) -> Iterator[str]:
    """Yield a line for each setting of a route that is not the default, without its timeouts."""
    if route.retry:
        replaced = any(target.resilience.budget for target in route.split.targets)
        yield from _retry(route.retry, "" if replaced else f", at most {route.retry.budget}% of the active requests")
    for target in route.split.targets:
        where = f" of {target.ref}" if len({other.resilience for other in route.split.targets}) > 1 else ""
        yield from (f"{line}{where}" for line in _of_cluster(target.resilience))
        if not where:
            return


def _retry(retry: Retry, limit: str) -> Iterator[str]:
    listed = [*map(str, retry.codes), *retry.grpc, *retry.conditions]
    if not listed:
        yield "retries: only requests that no application received"
        return
    yield f"retries: up to {retry.retries}, on {', '.join(listed)}{limit}"


def _of_cluster(settings: Resilience) -> Iterator[str]:
    if settings.ejection is None:
        yield "ejection of endpoints: off"
    elif settings.ejection != DEFAULT.ejection:
        yield f"ejection of endpoints: {_ejection(settings.ejection)}"
    if budget := settings.budget:
        interval = formatted(budget.interval / 1000)
        yield f"active retries: at most {budget.percent}% of the requests in {interval}, and always {budget.minimum}"
    limits = settings.limits
    for what in ("connections", "pending", "requests", "retries"):
        if limit := getattr(limits, what):
            yield f"limit of {what}: {limit}"
    if connect := settings.timeouts.connect:
        yield f"timeout of connecting: {connect} ms"
    if idle := settings.timeouts.idle:
        yield f"idle connections are closed after {idle} ms"


def _ejection(ejection: Ejection) -> str:
    counted = {
        "gateway errors": ejection.gateway_errors,
        "attempts without a response": ejection.local_errors,
        "5xx responses": ejection.errors,
    }
    listed = " or ".join(f"{number} {what}" for what, number in counted.items() if number) or "never"
    return f"after {listed} in a row, for {formatted(ejection.time / 1000)}, at most {ejection.max_percent}%"
