"""The schema of Canaries (004; R108, R109, D19)."""

from headgate.resources.mesh.canary.types import CanarySpec
from headgate.resources.schema.builders import Schema, anything, kind, listing, record, ruled, status, text, whole
from headgate.resources.schema.declared import declared_schema
from headgate.resources.smi.split_fields import SPLIT_RULES

_UP_TO_50 = "[0-4]?[0-9]([.][0-9]+)?|50([.]0+)?"
_ANALYSIS_RULES = (
    (
        f"!has(self.baseline) || !has(self.maxShare) || self.maxShare.matches('^({_UP_TO_50})%$')",
        "maxShare must be at most 50%, because the baseline has the same share",
    ),
    (
        f"!has(self.baseline) || !has(self.steps) || self.steps.all(step, step.share.matches('^({_UP_TO_50}|100([.]0+)?)%$'))",
        "the share of a step must be at most 50%, because the baseline has the same share; only a last step has 100%",
    ),
)
"""The rules of `spec.analysis` that `checks` states with more details."""


def _is_backend(field: str) -> str:
    """Return the expression that a field of `spec` is one of two or three backends. A loop would cost too much."""
    first, second, third = (f"{field} == self.backends[{index}].service" for index in range(3))
    return f"{first} || {second} || size(self.backends) == 3 && {third}"


_WITH_BACKENDS = "has(self.analysis) && size(self.backends) in [2, 3]"
_SPEC_RULES = (
    *SPLIT_RULES,
    (
        "!has(self.analysis) || size(self.backends) == (has(self.analysis.baseline) ? 3 : 2)",
        "backends must be 2 for an analysis, the primary and the canary, and 3 with spec.analysis.baseline",
    ),
    (
        f"!({_WITH_BACKENDS}) || {_is_backend('self.analysis.canary')}",
        "analysis.canary is not one of spec.backends; name the backend with the new version",
    ),
    (
        f"!({_WITH_BACKENDS} && has(self.analysis.baseline)) || {_is_backend('self.analysis.baseline')}",
        "analysis.baseline is not one of spec.backends; name the backend with the primary's version",
    ),
)
_STATUS = status(
    "Canary",
    step=whole("The number of the current step, counted from 1."),
    stepCount=whole("The number of steps."),
    canaryShare=text("The canary's share of the requests, for example 20%."),
    backends=listing(
        "The backends in the current step.",
        record(
            "One backend.",
            "service",
            service=text("The Service."),
            weight=whole("The weight in the TrafficSplit."),
            requests=whole("The number of requests in this step."),
            failures=whole("The number of these requests that failed."),
        ),
        key="service",
    ),
    criteria=listing(
        "The criteria of the analysis, with the evidence of the current step.",
        record(
            "One criterion.",
            "name",
            name=text(
                "The criterion: success, success.min, clientErrors, or a percentile with max or maxIncrease, as p99.max."
            ),
            rollBack=text("The evidence that the canary violates it, in percent of what a rollback needs."),
            promote=text("The evidence that the canary satisfies it, in percent of what a promotion needs."),
        ),
        key="name",
    ),
    rollout={
        **anything("The state from which any replica of the control plane continues the rollout."),
        "x-kubernetes-map-type": "atomic",
    },
)


def canary() -> Schema:
    """Return the schema of a Canary, which is the same in both of its versions."""
    spec = ruled(declared_schema(CanarySpec, "The desired split, and the analysis that changes it."), *_SPEC_RULES)
    analysis = ruled(spec["properties"]["analysis"], *_ANALYSIS_RULES)
    spec = {**spec, "properties": {**spec["properties"], "analysis": analysis}}
    return kind(
        "Moves the traffic of a root Service to a new version, step by step, or back if the new version is worse.",
        spec=spec,
        status=_STATUS,
    )
