"""The type of the status of Canaries: the state of the rollout for users, and the state that it continues from (R108, R109)."""

from collections.abc import Mapping
from typing import Annotated, Any

from headgate.resources.schema.builders import anything
from headgate.resources.schema.declared import Field, StatusPart
from headgate.resources.status import ObjectStatus


class BackendCounts(StatusPart, frozen=True, kw_only=True):
    """A backend in the current step. Without analysis, its requests are not counted."""

    service: Annotated[str, Field("The Service.", required=True)]
    weight: Annotated[int, Field("The weight in the TrafficSplit.")]
    requests: Annotated[int | None, Field("The number of requests in this step.")] = None
    failures: Annotated[int | None, Field("The number of these requests that failed.")] = None


class CriterionEvidence(StatusPart, frozen=True, kw_only=True):
    """A criterion: its evidence in percent of a decision. `promote` is empty if a promotion needs none."""

    name: Annotated[
        str,
        Field(
            "The criterion: success, success.min, clientErrors, or a percentile with max or maxIncrease, as p99.max.",
            required=True,
        ),
    ]
    roll_back: Annotated[
        str, Field("The evidence that the canary violates it, in percent of what a rollback needs.")
    ] = ""
    promote: Annotated[
        str, Field("The evidence that the canary satisfies it, in percent of what a promotion needs.")
    ] = ""


class CanaryStatus(ObjectStatus, frozen=True, kw_only=True):
    """`status` of a Canary. The step and the criteria exist with an analysis only."""

    step: Annotated[int, Field("The number of the current step, counted from 1.")] = 0
    step_count: Annotated[int, Field("The number of steps.")] = 0
    canary_share: Annotated[str, Field("The canary's share of the requests, for example 20%.")] = ""
    backends: Annotated[
        tuple[BackendCounts, ...],
        Field("The backends in the current step.", key="service", item=Field("One backend.")),
    ] = ()
    criteria: Annotated[
        tuple[CriterionEvidence, ...],
        Field(
            "The criteria of the analysis, with the evidence of the current step.",
            key="name",
            item=Field("One criterion."),
        ),
    ] = ()
    rollout: Annotated[
        Mapping[str, Any],
        Field(
            schema={
                **anything("The state from which any replica of the control plane continues the rollout."),
                "x-kubernetes-map-type": "atomic",
            }
        ),
    ] = {}
