"""Canaries for tests: a valid one, whose fields a test replaces."""

from typing import Any

from tests.make.objects import Object, obj

BACKENDS = [{"service": "website-v1", "weight": "900m"}, {"service": "website-v2", "weight": "100m"}]
WITH_BASELINE = [
    {"service": "website-v1", "weight": "800m"},
    {"service": "website-v2", "weight": "100m"},
    {"service": "website-base", "weight": "100m"},
]


def canary_with(analysis: Any = None, **spec: Any) -> Object:
    """Return a Canary with these fields in `spec`; the analysis gets website-v2 as the canary. None removes a field."""
    if isinstance(analysis, dict):
        analysis = _present({"canary": "website-v2", **analysis})
    whole = {"service": "website", "backends": BACKENDS, "analysis": analysis, **spec}
    return obj("Canary", "website", namespace="shop", spec=_present(whole))


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
