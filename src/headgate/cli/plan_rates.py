"""The rates of Services, from the metrics API or from its recorded answers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headgate.cli.arguments import check_paths
from headgate.cli.inspect_client import InspectClient
from headgate.durations import seconds
from headgate.errors import HeadgateError
from headgate.quantity import parse_quantity
from headgate.resources.metrics import FAILURE, SUCCESS

SERVICES = "/apis/traffic.metrics.k8s.io/v1beta1/services"
SPLITS = "/apis/metrics.smi-spec.io/v1alpha1/trafficsplits"
_COUNTS = frozenset((SUCCESS, FAILURE))


class ServiceRates:
    """Requests per second by Service (`namespace/name`)."""

    def __init__(self, rps: Mapping[str, float] | None = None) -> None:
        self._rps = rps or {}

    def of(self, service: str) -> float | None:
        """Return the requests per second to a Service; None if they are unknown."""
        return self._rps.get(service)


async def read_rates(client: InspectClient) -> ServiceRates:
    """Return the rates of the running mesh; none if the metrics API is not available, because a plan is useful without."""
    items: list[Mapping[str, Any]] = []
    for path in (SERVICES, SPLITS):
        try:
            items += (await client.client.get(path)).get("items") or ()
        except HeadgateError:
            continue
    return ServiceRates(_rates(items))


def recorded_rates(paths: Sequence[Path]) -> ServiceRates:
    """Return the rates in recorded answers of the metrics API. Raises HeadgateError for another content."""
    items: list[Mapping[str, Any]] = []
    for path in check_paths(paths):
        try:
            items += msgspec.json.decode(path.read_bytes(), type=dict[str, Any])["items"]
        except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
            raise HeadgateError(
                f"{path} is no recorded answer of the metrics API; record one with `kubectl get --raw {SERVICES} > FILE`"
            ) from error
    return ServiceRates(_rates(items))


def _rates(items: Iterable[Mapping[str, Any]]) -> Mapping[str, float]:
    """Return the requests per second by Service; those that named the root of a split, if a split has it as its root."""
    services: dict[str, float] = {}
    roots: dict[tuple[str, str], float] = {}
    for metrics in items:
        resource, backend = metrics.get("resource") or {}, metrics.get("backend")
        namespace, rps = resource.get("namespace", ""), _rps(metrics)
        if backend:
            key = f"{namespace}/{str(backend.get('apex', '')).partition('.')[0]}", resource.get("name", "")
            roots[key] = roots.get(key, 0.0) + rps
        elif resource.get("kind") == "Service":
            services[f"{namespace}/{resource.get('name', '')}"] = rps
    for (root, _), rps in roots.items():
        services[root] = max(services.get(root, 0.0), rps)
    return services


def _rps(metrics: Mapping[str, Any]) -> float:
    window = seconds(str(metrics.get("window") or ""))
    values = (metric.get("value", "0") for metric in metrics.get("metrics") or () if metric.get("name") in _COUNTS)
    return float(sum(parse_quantity(value) for value in values)) / window if window else 0.0
