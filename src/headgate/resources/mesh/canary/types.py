"""The type of Canaries (004; R108, R109, D19): a split whose weights a rollout moves to the new version.

Quantities, percentages and durations stay text, as users write them; properties return their exact values. The checks of
the kind guarantee that each of these texts has a value.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

from headgate.quantity import parse_percentage
from headgate.resources.gateway_api.proxies import ENVOY, NGINX
from headgate.resources.grammars import HEADER_NAME
from headgate.resources.mesh.canary.analysis import Analysis
from headgate.resources.meta import Input, Resource, part, rows
from headgate.resources.schema import builders
from headgate.resources.schema.builders import MATCH_NAME
from headgate.resources.schema.declared import BrokenAt, Field, FieldRule
from headgate.resources.smi.split_fields import BackendName, RootSpec, StickyBy
from headgate.resources.weights import integer_weights, quantity, whole_weights

CANARY_WEIGHTS = "headgate.dev/canary-weights"
"""The annotation of an owned TrafficSplit with the weights that the rollout has set: `website-v1=9,website-v2=1`."""
PROMOTED = "Promoted"
"""The condition that is True once the canary has all requests, False once it was rolled back, and Unknown before."""
OLD_VERSION_UNUSED = "OldVersionUnused"
"""The condition that is True once no proxy sends the old version a request."""
ONE = Fraction(1)


class CanaryBackend(Input, frozen=True, kw_only=True):
    """A backend of a Canary: a Service (or `name.namespace`, D12) and its relative weight, a quantity such as `900m`."""

    service: BackendName
    weight: Annotated[
        int | float | str,
        Field(
            schema=builders.quantity(
                "The relative share of the root's traffic, in the first step if there is an analysis. A quantity: 1 is 1000m."
            )
        ),
    ]

    @property
    def amount(self) -> Fraction:
        """The exact weight."""
        return quantity(self.weight, "spec.backends.weight")


class CanaryStickiness(Input, frozen=True, kw_only=True):
    """What keeps a user at one backend: a cookie or a header called `name`, or the client's address."""

    __rules__ = (
        FieldRule(
            "name",
            "is missing: write the name of the cookie or header",
            cel="self.by == 'Source' || has(self.name)",
            broken=lambda stickiness: stickiness.get("by") in ("Cookie", "Header") and stickiness.get("name") is None,
        ),
        FieldRule(
            "name",
            "can't be combined with by: Source; remove it",
            cel="self.by != 'Source' || !has(self.name)",
            broken=lambda stickiness: stickiness.get("by") == "Source" and stickiness.get("name") is not None,
        ),
    )

    by: Annotated[StickyBy, Field("What identifies a user: a cookie, a header, or the address of the client (Source).")]
    name: Annotated[str, Field("The name of the cookie or header.", pattern=HEADER_NAME)] = ""

    @property
    def annotation(self) -> str:
        """The value of the annotation `headgate.dev/sticky` of a TrafficSplit: `cookie:NAME`, `header:NAME` or `source`."""
        return ":".join(filter(None, (self.by.value.lower(), self.name)))


class NoEndpointsPolicy(Enum):
    """What the share of a backend without ready endpoints gets: the other backends (Skip), or 503 (Fail)."""

    SKIP = "Skip"
    FAIL = "Fail"


class GatewayProgram(Enum):
    """The proxy behind the root Service for clients without a sidecar."""

    ENVOY = ENVOY.capitalize()
    NGINX = NGINX.capitalize()

    @property
    def annotation(self) -> str:
        """The value of the annotation `headgate.dev/gateway` of a Service: `envoy` or `nginx`."""
        return self.value.lower()


class StepKind(Enum):
    """What the canary gets in a step: a share of all requests, copies of requests, or the requests that fit a match."""

    SHARE = "share"
    MIRROR = "mirror"
    MATCH = "match"


class RolloutStep(NamedTuple):
    """A step of the whole rollout: the canary's share. With `pause`, it ends only when a user promotes."""

    share: Fraction
    pause: bool = False
    kind: StepKind = StepKind.SHARE


class Action(Enum):
    """The action that a request commands."""

    PROMOTE = "Promote"
    ABORT = "Abort"
    RESUME = "Resume"
    RESTART = "Restart"


class RolloutRequest(Input, frozen=True, kw_only=True):
    """An action that the rollout takes once for each ID."""

    action: Annotated[
        Action,
        Field(
            "Promote ends the step as passed, Abort rolls back, Resume continues after an edit of the split, Restart begins "
            "with the first step again."
        ),
    ]
    id: Annotated[
        str,
        Field(
            "A name of the requester's choice. A request whose id was the last one has no effect.", pattern=MATCH_NAME
        ),
    ]


def _count_rule(count: int, *, baseline: bool, message: str, hint: str = "") -> FieldRule:
    """Return the rule on how many backends an analysis with or without a baseline has."""

    def broken(spec: Mapping[str, Any]) -> Iterator[BrokenAt]:
        analysis, size = spec.get("analysis"), len(list(rows(spec.get("backends"))))
        if (
            isinstance(analysis, Mapping)
            and (analysis.get("baseline") is not None) is baseline
            and size not in (0, count)
        ):
            yield BrokenAt(detail=f", not {size}{hint if size > count else ''}")

    of_other_analysis = f"{'!' if baseline else ''}has(self.analysis.baseline)"
    cel = f"!has(self.analysis) || {of_other_analysis} || size(self.backends) in [0, {count}]"
    return FieldRule("backends", f"must be {count} for this analysis, {message}", cel, broken)


def _role_rule(role: str, version: str) -> FieldRule:
    """Return the rule that a role of the analysis is the name of a backend. In CEL, a loop would cost too much."""

    def broken(spec: Mapping[str, Any]) -> Iterator[BrokenAt]:
        name = part(spec, "analysis").get(role)
        services = [str(row.get("service")) for _, row in rows(spec.get("backends"))]
        if isinstance(name, str) and name not in services:
            yield BrokenAt(detail=f": {' or '.join(services)}" if services else "")

    first, second, third = (f"self.analysis.{role} == self.backends[{index}].service" for index in range(3))
    is_backend = f"{first} || {second} || size(self.backends) == 3 && {third}"
    return FieldRule(
        f"analysis.{role}",
        f"is not one of spec.backends; name the backend with the {version} version",
        f"!has(self.analysis) || !has(self.analysis.{role}) || !(size(self.backends) in [2, 3]) || {is_backend}",
        broken,
    )


class CanarySpec(RootSpec, frozen=True, kw_only=True):
    """`spec` of a Canary: clients call the root `service`, and `backends` share its traffic.

    Without `analysis` the shares are those of the backends' weights. With `analysis` they are those of the first step.
    """

    __rules__ = (
        *RootSpec.__rules__,
        _count_rule(
            2,
            baseline=False,
            message="the primary and the canary",
            hint="; name the third one in spec.analysis.baseline, or remove it",
        ),
        _count_rule(3, baseline=True, message="the primary, the canary and the baseline"),
        _role_rule("canary", "new"),
        _role_rule("baseline", "primary's"),
    )

    backends: Annotated[
        tuple[CanaryBackend, ...],
        Field(
            "The Services that share the root's traffic. With analysis: the primary, the canary, and the baseline if it is "
            "named.",
            key="service",
            item=Field("One Service and its share."),
        ),
    ]
    stickiness: Annotated[
        CanaryStickiness | None,
        Field("What keeps a user at one backend. When absent, the backend is chosen for each request."),
    ] = None
    no_endpoints_policy: Annotated[
        NoEndpointsPolicy,
        Field(
            "What the share of a backend without ready endpoints gets: the other backends (Skip), or responses with status 503 "
            "(Fail)."
        ),
    ] = NoEndpointsPolicy.SKIP
    allow_self_reference: Annotated[
        bool, Field("Whether the root may be a backend; its share then goes to the root's own endpoints.")
    ] = False
    gateway: Annotated[
        GatewayProgram | None,
        Field(
            "The proxy behind the root Service for clients without a sidecar. No such proxy when absent, unless the Service "
            "requests one."
        ),
    ] = None
    paused: Annotated[bool, Field("Whether the rollout keeps its weights until this is false again.")] = False
    request: Annotated[
        RolloutRequest | None,
        Field("An action that the rollout takes once for each id, as `headgate rollout` writes it."),
    ] = None
    analysis: Annotated[
        Analysis | None,
        Field(
            "How the canary is compared with the primary, and moved to all traffic or back to none. When absent, the backends "
            "keep their weights."
        ),
    ] = None

    @property
    def command(self) -> str:
        """The request as `ACTION/ID`; empty without one."""
        return f"{self.request.action.value}/{self.request.id}" if self.request else ""

    @property
    def fixed_weights(self) -> tuple[int, ...]:
        """The integer weights of the backends, in their order and in the ratio of their quantities (D24)."""
        return tuple(integer_weights([backend.amount for backend in self.backends]))

    @property
    def written_share(self) -> Fraction:
        """The canary's share by the weights of the backends; 0 without analysis."""
        return self._first_share(self.analysis.canary) if self.analysis else Fraction(0)

    @property
    def primary(self) -> str:
        """The backend with the old version: neither the canary nor the baseline; empty without analysis."""
        roles = (self.analysis.canary, self.analysis.baseline) if self.analysis else ()
        return next((backend.service for backend in self.backends if roles and backend.service not in roles), "")

    @property
    def rollout(self) -> tuple[RolloutStep, ...]:
        """The steps of the rollout, from the share of the backends' weights to 1; empty without analysis.

        Before them are steps without a share: with copies of requests, and with the requests that fit a match.
        A listed step with the share of the backends' weights is this first step. If the canary's weight is 0, the first
        listed or computed step is the first.
        """
        if self.analysis is None:
            return ()
        first = self._first_share(self.analysis.canary)
        steps = [RolloutStep(first), *_later_steps(self.analysis, first), RolloutStep(ONE)]
        pauses: dict[Fraction, bool] = {}
        for share, pause, _ in steps:
            pauses[share] = pauses.get(share, False) or pause
        first_kinds = ((StepKind.MIRROR, self.analysis.mirror), (StepKind.MATCH, self.analysis.matches))
        before = (RolloutStep(Fraction(0), kind=kind) for kind, value in first_kinds if value)
        return (*before, *(RolloutStep(share, pause) for share, pause in pauses.items() if share))

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """The canary's share in each step; the baseline has the same share, but none in the last step."""
        return tuple(step.share for step in self.rollout)

    def weights_at(self, share: Fraction) -> tuple[int, ...]:
        """Return the integer weights of the backends, in their order, at a share of the canary.

        The baseline has the canary's share, and the primary the rest. At 1 the canary has all traffic, at 0 the primary.
        Requires `analysis`.
        """
        if self.analysis is None:
            raise ValueError("a Canary without analysis has only the weights of its backends")
        beside = share if self.analysis.baseline and share < 1 else Fraction(0)
        shares = {self.analysis.canary: share, self.analysis.baseline: beside}
        return whole_weights([shares.get(backend.service, 1 - share - beside) for backend in self.backends])

    def _first_share(self, canary: str) -> Fraction:
        amounts = {backend.service: backend.amount for backend in self.backends}
        return amounts[canary] / sum(amounts.values())


def _later_steps(analysis: Analysis, first: Fraction) -> Iterator[RolloutStep]:
    """Yield the steps between the first one and the last one."""
    if not analysis.step_share:
        yield from (RolloutStep(parse_percentage(step.share), step.pause) for step in analysis.steps)
        return
    share, rise, most = first, parse_percentage(analysis.step_share), parse_percentage(analysis.max_share)
    while share < most:
        share = min(share + rise, most)
        yield RolloutStep(share)


class Canary(Resource, frozen=True, kw_only=True):
    """A Canary. Its rollout owns the TrafficSplit of the same name, and moves its weights (D19)."""

    spec: CanarySpec
