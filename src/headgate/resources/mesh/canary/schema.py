"""The schema of Canaries (004; R108, R109, D19)."""

from headgate.resources.mesh.canary.types import CanarySpec
from headgate.resources.schema.builders import Schema, anything, kind, listing, record, status, text, whole
from headgate.resources.schema.declared import declared_schema

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
    """Return the schema of a Canary."""
    return kind(
        "Moves the traffic of a root Service to a new version, step by step, or back if the new version is worse.",
        spec=declared_schema(CanarySpec, "The desired split, and the analysis that changes it."),
        status=_STATUS,
    )
