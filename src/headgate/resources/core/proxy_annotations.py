"""The annotations of pods, pod templates and Namespaces for the proxies that injection adds on a cluster."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from headgate.errors import Cause
from headgate.quantity import parse_quantity

CPU, MEMORY = "headgate.dev/proxy-cpu", "headgate.dev/proxy-memory"
CPU_LIMIT, MEMORY_LIMIT = "headgate.dev/proxy-cpu-limit", "headgate.dev/proxy-memory-limit"
CONCURRENCY = "headgate.dev/proxy-concurrency"
LOG_LEVEL = "headgate.dev/proxy-log-level"
LOG_LEVELS = ("trace", "debug", "info", "warning", "error", "critical", "off")
LARGEST_CONCURRENCY = 64
RESOURCES: Mapping[str, tuple[str, str]] = {
    CPU: ("requests", "cpu"),
    MEMORY: ("requests", "memory"),
    CPU_LIMIT: ("limits", "cpu"),
    MEMORY_LIMIT: ("limits", "memory"),
}
"""The annotations that are fields of the container's resources: the field and the resource."""
DEFAULTS: Mapping[str, str] = {
    CPU: "20m",
    MEMORY: "64Mi",
    MEMORY_LIMIT: "1Gi",
    CONCURRENCY: "1",
    LOG_LEVEL: "warning",
}
"""Measured: 17 MiB with 10 Services, 114 MiB with 1,000; 0.15 ms of processor time for a request (docs/explain/performance.md)."""
_LEAST_MEMORY = parse_quantity("1Mi")
_NUMBER = re.compile(r"[0-9]{1,2}", re.ASCII)


def checked(key: str, text: str) -> str:
    """Return the value of an annotation. Raises ValueError with what to write."""
    _FORMS[key](text)
    return text


def proxy_annotation_causes(annotations: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield the mistakes in the annotations of an object; `where` is the path of its annotations."""
    valid: dict[str, str] = {}
    for key in _FORMS:
        text = annotations.get(key)
        if isinstance(text, str):
            try:
                valid[key] = checked(key, text)
            except ValueError as error:
                yield Cause(f"{where}.{key}", str(error))
    for key, limit in ((CPU, CPU_LIMIT), (MEMORY, MEMORY_LIMIT)):
        if key in valid and limit in valid and parse_quantity(valid[key]) > parse_quantity(valid[limit]):
            yield Cause(f"{where}.{key}", f"must be at most the limit in {limit}")


def _quantity(text: str, *, is_memory: bool) -> None:
    value = parse_quantity(text)
    if value <= 0:
        raise ValueError(f"must be more than 0, not {text!r}")
    if is_memory and value < _LEAST_MEMORY:
        raise ValueError(f"{text!r} is less than 1Mi; write the unit, for example 128Mi")


def _concurrency(text: str) -> None:
    if not (_NUMBER.fullmatch(text) and 1 <= int(text) <= LARGEST_CONCURRENCY):
        raise ValueError(f"must be a number of threads from 1 to {LARGEST_CONCURRENCY}, not {text!r}")


def _level(text: str) -> None:
    if text not in LOG_LEVELS:
        raise ValueError(f"must be {', '.join(LOG_LEVELS[:-1])} or {LOG_LEVELS[-1]}, not {text!r}")


_FORMS: Mapping[str, Callable[[str], None]] = {
    **{key: partial(_quantity, is_memory=resource == "memory") for key, (_, resource) in RESOURCES.items()},
    CONCURRENCY: _concurrency,
    LOG_LEVEL: _level,
}
PROXY_ANNOTATIONS = tuple(_FORMS)
"""All annotations, in the order of the documentation."""
