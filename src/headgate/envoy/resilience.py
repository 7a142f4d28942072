"""Render the resilience settings of a Service on its clusters: ejection, limits and timeouts (docs/tasks/resilience.md)."""

from headgate.envoy import pb
from headgate.envoy.values import duration, number
from headgate.model.resilience import Ejection, Limits, Resilience

UNLIMITED = 2**32 - 1  # the largest value, which disables a limit
SWEEP_MS = 5_000
"""The time between two checks for endpoints whose ejection is over."""
MIN_RETRIES = 10
"""The number of active retries that a budget always allows."""
PANIC_PERCENT = 50
"""Envoy's default: if fewer endpoints than that are not ejected, it calls all of them."""


def unlimited() -> pb.CircuitBreakers:
    """Return the circuit breakers of a cluster that sets no limits; Envoy's default is 1,024 of each kind, and 3 retries."""
    limit = number(UNLIMITED)
    threshold = pb.CircuitBreakers.Thresholds(
        max_connections=limit, max_pending_requests=limit, max_requests=limit, max_retries=limit
    )
    return pb.CircuitBreakers(thresholds=[threshold])


def apply(cluster: pb.Cluster, settings: Resilience) -> None:
    """Add the settings to a cluster; `max_percent` of its ejection never covers a whole backend (`ClusterPlan`)."""
    cluster.connect_timeout.CopyFrom(duration(settings.connect))
    cluster.circuit_breakers.thresholds.append(_threshold(settings))
    if settings.ejection is None:
        return
    cluster.common_lb_config.update_merge_window.CopyFrom(
        duration(0)
    )  # by default, an ejection takes effect up to 1 s later
    cluster.outlier_detection.CopyFrom(_detection(settings.ejection))
    if settings.ejection.max_percent > PANIC_PERCENT:
        cluster.common_lb_config.healthy_panic_threshold.CopyFrom(pb.Percent(value=0))


def _detection(ejection: Ejection) -> pb.OutlierDetection:
    """Return Envoy's outlier detection. Failures without a response are counted apart from error responses."""
    return pb.OutlierDetection(
        interval=duration(min(SWEEP_MS, ejection.time)),
        base_ejection_time=duration(ejection.time),
        max_ejection_time=duration(ejection.max_time),
        max_ejection_percent=number(ejection.max_percent),
        split_external_local_origin_errors=True,
        consecutive_5xx=number(ejection.errors) if ejection.errors else None,
        enforcing_consecutive_5xx=None if ejection.errors else number(0),
        consecutive_gateway_failure=number(ejection.gateway_errors) if ejection.gateway_errors else None,
        enforcing_consecutive_gateway_failure=number(100) if ejection.gateway_errors else None,  # 0 by default
        consecutive_local_origin_failure=number(ejection.local_errors) if ejection.local_errors else None,
        enforcing_consecutive_local_origin_failure=None if ejection.local_errors else number(0),
        enforcing_success_rate=number(0),
        enforcing_local_origin_success_rate=number(0),
    )


def _threshold(settings: Resilience) -> pb.CircuitBreakers.Thresholds:
    limits: Limits = settings.limits
    thresholds = pb.CircuitBreakers.Thresholds(
        max_connections=number(limits.connections or UNLIMITED),
        max_pending_requests=number(limits.pending or UNLIMITED),
        max_requests=number(limits.requests or UNLIMITED),
        max_retries=number(limits.retries or UNLIMITED),
    )
    if budget := settings.budget:
        thresholds.retry_budget.CopyFrom(
            pb.CircuitBreakers.Thresholds.RetryBudget(
                budget_percent=pb.Percent(value=budget.percent),
                budget_interval=duration(budget.interval),
                min_retry_concurrency=number(budget.minimum),
            )
        )
    elif settings.retry and settings.retry.budget and not limits.retries:
        retry_budget = pb.CircuitBreakers.Thresholds.RetryBudget(
            budget_percent=pb.Percent(value=settings.retry.budget), min_retry_concurrency=number(MIN_RETRIES)
        )
        thresholds.retry_budget.CopyFrom(retry_budget)
    return thresholds
