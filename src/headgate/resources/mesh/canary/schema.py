"""The schema of Canaries (004; R108, R109, D19)."""

from headgate.quantity import PERCENTAGE
from headgate.resources.schema.builders import (
    DURATION,
    MATCH_NAME,
    PERCENTILE,
    REQUEST_PATH,
    Schema,
    anything,
    choice,
    flag,
    kind,
    listing,
    matching,
    port,
    quantity,
    record,
    ruled,
    share,
    status,
    text,
    whole,
)
from headgate.resources.smi.http_route_group import request_match
from headgate.resources.smi.split_fields import SPLIT_RULES

_BACKENDS = listing(
    "The Services that share the root's traffic. With analysis: the primary, the canary, and the baseline if it is named.",
    record(
        "One Service and its share.",
        "service weight",
        service=text("The Service; name.namespace when it is in another namespace that grants this."),
        weight=quantity(
            "The relative share of the root's traffic, in the first step if there is an analysis. A quantity: 1 is 1000m."
        ),
    ),
    key="service",
)
_STEPS = ruled(
    listing(
        "The steps after the first one, whose shares rise. A last step with 100% follows by itself.",
        record(
            "One step of the rollout.",
            "share",
            share=share("The canary's share of the requests, for example 25%."),
            pause=flag("Whether the step ends only when a user promotes the canary.", default=False),
        ),
        maxItems=100,
    ),
    (
        "self.all(step, self.exists_one(other, step.share == other.share))",
        "the share of each step must be above that of the step before",
    ),
)
_SUCCESS = record(
    "The limits of the canary's success rate.",
    maxDrop=matching(
        "The canary is rolled back once its success rate is proven to be lower than the primary's by more.",
        PERCENTAGE,
        default="0%",
    ),
    margin=matching(
        "The canary is promoted once a drop of maxDrop and margin together is ruled out.", PERCENTAGE, default="1%"
    ),
    min=share(
        "The canary is rolled back once its success rate is proven to be lower; with 100% after any failure. "
        "No such limit when absent."
    ),
)
_CLIENT_ERRORS = record(
    "Compares the shares of client errors: statuses of 400 to 499, and gRPC's client errors. When absent, they are no reason "
    "to roll back.",
    maxIncrease=matching(
        "The canary is rolled back once its share is proven to be higher than the primary's by more.",
        PERCENTAGE,
        default="0%",
    ),
    margin=matching(
        "The canary is promoted once an increase of maxIncrease and margin together is ruled out.",
        PERCENTAGE,
        default="1%",
    ),
)
_LATENCIES = listing(
    "The limits of the canary's latency; none when empty.",
    ruled(
        record(
            "A limit of one percentile: max, maxIncrease, or both.",
            "percentile",
            percentile=matching("The percentile: p50 to p99, or with more digits, as p999 for 99.9%.", PERCENTILE),
            max=matching("The highest latency, for example 500ms.", DURATION),
            maxIncrease=matching("The highest increase above the latency of the primary, for example 10%.", PERCENTAGE),
        ),
        (
            "has(self.max) || has(self.maxIncrease)",
            "has no limit: write max, for example 500ms, or maxIncrease, for example 10%",
        ),
    ),
    key="percentile",
)
_WEBHOOKS = listing(
    "The programs that headgate calls with POST; 2xx agrees, 4xx rolls the canary back, other answers are asked again.",
    record(
        "One program.",
        "name when service port",
        name=matching("The name, for messages.", MATCH_NAME),
        when=choice(
            "Before the first request to the canary, during each step, or after the end.", "Before During After"
        ),
        service=text("The Service in the Canary's namespace.", "label"),
        port=port("The port of the Service."),
        path=matching("The path of the request.", REQUEST_PATH, default="/"),
    ),
    key="name",
)
_UP_TO_50 = "[0-4]?[0-9]([.][0-9]+)?|50([.]0+)?"
_ANALYSIS_RULES = (
    (
        "!has(self.baseline) || self.baseline != self.canary",
        "baseline is the canary; name another backend, with the primary's version, or remove the field",
    ),
    (
        "!has(self.steps) || size(self.steps) == 0 || !has(self.stepShare) && !has(self.maxShare)",
        "stepShare and maxShare can't be combined with steps; remove one of them",
    ),
    (
        "has(self.stepShare) == has(self.maxShare)",
        "stepShare and maxShare belong together: each step raises the canary's share by stepShare, up to maxShare",
    ),
    (
        f"!has(self.baseline) || !has(self.maxShare) || self.maxShare.matches('^({_UP_TO_50})%$')",
        "maxShare must be at most 50%, because the baseline has the same share",
    ),
    (
        f"!has(self.baseline) || !has(self.steps) || self.steps.all(step, step.share.matches('^({_UP_TO_50}|100([.]0+)?)%$'))",
        "the share of a step must be at most 50%, because the baseline has the same share; only a last step has 100%",
    ),
    (
        "!has(self.dryRun) || !self.dryRun || !has(self.mirror) && !has(self.matches)",
        "mirror and matches can't be combined with dryRun, which changes nothing for the canary; remove one of them",
    ),
    (
        "!has(self.interval) || !self.interval.matches('^(0+[hms]+)+$')",
        "interval must be longer than 0; write for example 30s",
    ),
)


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
_ANALYSIS = record(
    "How the canary is compared with the primary, and moved to all traffic or back to none. When absent, the backends "
    "keep their weights.",
    "canary",
    canary=text("The backend with the new version."),
    baseline=text(
        "A backend with the primary's version and the canary's share; the canary is compared with it. "
        "When absent, the canary is compared with the primary."
    ),
    mirror=share(
        "A step before the first share: the canary gets copies of this share of the requests, for example 20%, and no "
        "user's request. No such step when absent."
    ),
    matches=listing(
        "A step before the first share: only the requests that satisfy one of these matches go to the canary. No such step "
        "when empty.",
        request_match(),
        key="name",
    ),
    steps=_STEPS,
    stepShare=share("Instead of steps: the canary's share rises by this much in each step, up to maxShare."),
    maxShare=share("The canary's share in the last step of stepShare; 100% follows."),
    interval=matching("The shortest length of a step, for example 30s.", DURATION, default="1m"),
    minRequests=whole("The least number of requests to the canary in each step.", minimum=1, default=20),
    errorProbability=matching(
        "The tolerated probability of a wrong rollback, and of a wrong promotion.", PERCENTAGE, default="1%"
    ),
    failuresWithin=matching(
        "Failures of one version within this time count as one, for example 10s, because one incident may cause them. "
        "When absent, each failure counts.",
        DURATION,
    ),
    dryRun=flag("Whether decisions are reported only, and no weight changes.", default=False),
    success={**_SUCCESS, "default": {}},
    clientErrors=_CLIENT_ERRORS,
    latencies=_LATENCIES,
    webhooks=_WEBHOOKS,
)
_REQUEST = record(
    "An action that the rollout takes once for each id, as `headgate rollout` writes it.",
    "action id",
    action=choice(
        "Promote ends the step as passed, Abort rolls back, Resume continues after an edit of the split, Restart begins "
        "with the first step again.",
        "Promote Abort Resume Restart",
    ),
    id=matching("A name of the requester's choice. A request whose id was the last one has no effect.", MATCH_NAME),
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
    spec = record(
        "The desired split, and the analysis that changes it.",
        "service backends",
        service=text("The root: the Service that clients call, as a short name or a full domain name."),
        backends=_BACKENDS,
        paused=flag("Whether the rollout keeps its weights until this is false again.", default=False),
        request=_REQUEST,
        analysis=ruled(_ANALYSIS, *_ANALYSIS_RULES),
    )
    return kind(
        "Moves the traffic of a root Service to a new version, step by step, or back if the new version is worse.",
        spec=ruled(spec, *_SPEC_RULES),
        status=_STATUS,
    )
