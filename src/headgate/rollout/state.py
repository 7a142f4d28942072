"""The state of a rollout, and the facts that change it (R108).

The state is in the Canary's status, so any replica of the control plane continues from there (`transitions`).
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, structs

from headgate.resources.meta import Object, Value, part
from headgate.rollout import criteria
from headgate.rollout.criteria import Evidence
from headgate.statistics.betting import Block
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.histogram import Buckets

REPORT_S = 5.0
"""Seconds of a step whose reports may have requests from before the step: they are left out.

It is `envoy.stats_sink.CLUSTER_SECONDS`, which commands can't import: they would load protobuf.
"""
WEBHOOK = "webhook"
"""How the cause begins when a webhook requested the rollback; the webhook's name follows."""
LOST = "lost"
"""The cause of a rollback because the canary was lost; `State.lost` says how."""
BY_USER = "by a user"
"""The cause of a promotion or a rollback that a command requested."""


class Phase(Enum):
    """The phase of a Canary."""

    SPLIT = "Split"
    PROGRESSING = "Progressing"
    PAUSED = "Paused"
    PROMOTED = "Promoted"
    ROLLED_BACK = "RolledBack"

    @property
    def is_over(self) -> bool:
        """Whether the rollout has ended: with the next version of `spec.backends`, or a restart, another one begins."""
        return self in (Phase.PROMOTED, Phase.ROLLED_BACK)


class Pause(Enum):
    """Why a rollout is paused."""

    SPEC = "spec.paused is true"
    GATE = "the step has a pause"
    BEFORE = "the webhooks have not agreed yet"
    EDITED = "the TrafficSplit was edited"


class WebhookAnswer(NamedTuple):
    """The answer of a webhook: True for yes, False for no, None if it gave no answer; and what happened."""

    agrees: bool | None
    text: str


NO_ANSWER = WebhookAnswer(None, "not called yet")


class Loss(Enum):
    """Why a canary that was alive counts as lost (D33)."""

    ENDPOINTS = "no ready endpoint"
    REQUESTS = "no requests"


class Life(Value, frozen=True, kw_only=True, rename="camel"):
    """What shows that the canary is alive.

    `ready` says whether it had a ready endpoint at the last look, and `was_ready` whether it had one earlier in the rollout.
    `request_at` is the time of its last requests (seconds since the epoch; 0 before), and `missed` counts those of the
    reference since then. `unconnected` counts attempts in this step that found no program at the canary.
    """

    ready: bool = True
    was_ready: bool = False
    request_at: float = 0.0
    missed: int = 0
    unconnected: int = 0


class Edit(Value, frozen=True, kw_only=True):
    """What a user has written into an owned split: the weight of each backend, and the names of its matches."""

    weights: Mapping[str, int]
    matches: tuple[str, ...] = ()


class State(Value, frozen=True, kw_only=True, rename="camel"):
    """The state of a rollout.

    `subject` and `rules` have digests of the parts of the spec that begin another rollout, or another test of the step.
    `step` counts from 0. `since` is when every proxy had the weights of the step, in seconds since the epoch; 0 before.
    `latency_limits` has those of relative criteria, as durations, `command` is the last request that was obeyed, as `ACTION/ID`. `edit` is what a user wrote
    into the split; it stays after a resumption until the split has the weights again. `lost` says why the canary counts as
    lost, since the time `lost_since`. `cause` has the criteria that ended the rollout, and `informed` the webhooks that know its end. `replies` say why webhooks do not agree.
    `missing` has the backends whose Service does not exist.
    """

    subject: str = ""
    rules: str = ""
    phase: Phase = Phase.PROGRESSING
    pause: Pause | None = None
    step: int = 0
    since: float = 0.0
    evidence: Mapping[str, Evidence] = {}
    latency_limits: Mapping[str, Annotated[str, Meta(pattern=r"^\d{1,8}(\.\d{1,3})?(us|ms|s)$")]] = {}
    command: str = ""
    edit: Edit | None = None
    life: Life = Life()
    lost: Loss | None = None
    lost_since: float = 0.0
    cause: str = ""
    informed: tuple[str, ...] = ()
    replies: Mapping[str, str] = {}
    missing: tuple[str, ...] = ()

    @property
    def seen(self) -> Block:
        """The requests of the step, and those of them that failed."""
        success = self.evidence.get(criteria.SUCCESS)
        return success.seen if success else criteria.NOTHING

    @property
    def needs_attention(self) -> bool:
        """Whether something went wrong: the canary was rolled back, or the split was edited. Users' commands are no mistakes."""
        is_rolled_back = self.phase is Phase.ROLLED_BACK and self.cause != BY_USER
        return is_rolled_back or self.pause is Pause.EDITED

    @property
    def begun_by(self) -> str:
        """The versions, the rules and the command that began the current rollout or its current step again."""
        return f"{self.subject} {self.rules} {self.command}"

    @property
    def is_counting(self) -> bool:
        """Whether requests are evidence: in a step whose weights every proxy has, until the rollout ends."""
        return self.since > 0 and self.phase in (Phase.PROGRESSING, Phase.PAUSED)

    def report_intervals(self, now: float) -> int:
        """Return how many report intervals of a step have passed, at most 2.

        In the first interval nothing counts, and in the second one the first counts arrive.
        """
        return min(max(int((now - self.since) // REPORT_S), 0), 2) if self.is_counting else 2

    @property
    def milestone(self) -> tuple[object, ...]:
        """What gets an Event when it changes: the versions, the phase, the pause and the step."""
        return self.subject, self.phase, self.pause, self.step

    def has_moved(self, before: "State") -> bool:
        """Return whether the state differs from an earlier one in more than what requests change at each look."""
        return (
            structs.replace(self, evidence=before.evidence, latency_limits=before.latency_limits, life=before.life)
            != before
        )


def state_in(obj: Object) -> State:
    """Return the state in the status of a Canary; a new one if there is none, or if it can't be read."""
    try:
        return msgspec.convert(part(part(obj, "status"), "rollout"), State)
    except msgspec.ValidationError:
        return State()


def state_fields(state: State) -> Mapping[str, Any]:
    """Return a state as JSON for the status of a Canary."""
    fields: Mapping[str, Any] = msgspec.json.decode(msgspec.json.encode(state))
    return fields


class Facts(NamedTuple):
    """What a transition reads besides the spec and the state.

    `now` is in seconds since the epoch. `is_active` says whether every proxy that needs the weights has acknowledged them,
    `edit` is what a user has written into the owned split. `counts` are new since the last transition, by backend as written
    in the spec, and `copies` those of copies to the canary. `latency` is the histogram of the reference's last requests before
    them, and `answers` has those of webhooks in this step. `ready` says whether the canary has a ready endpoint, and `missing`
    are the backends whose Service does not exist.
    """

    now: float
    is_active: bool = False
    ready: bool = True
    missing: tuple[str, ...] = ()
    edit: Edit | None = None
    command: str = ""
    counts: Mapping[str, Counts] = {}
    copies: Counts = Counts()
    latency: Buckets = 0
    answers: Mapping[str, WebhookAnswer] = {}

    def agree(self, hooks: Sequence[str]) -> bool:
        """Return whether all of these webhooks agree."""
        return all(self.answers.get(name, NO_ANSWER).agrees for name in hooks)
