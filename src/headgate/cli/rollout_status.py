"""The status of a Canary as text: its state, its backends with their failed requests, and the evidence of each criterion."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate import formatting
from headgate.cli.open_values import with_open_values
from headgate.cli.output import FittedTable, WrappedText, make_table
from headgate.errors import HeadgateError
from headgate.formatting import NONE
from headgate.quantity import parse_percentage
from headgate.resources.mesh.canary.status import BackendCounts, CanaryStatus, CriterionEvidence
from headgate.resources.mesh.canary.types import PROMOTED, CanarySpec
from headgate.resources.meta import Input, Object
from headgate.rollout.state import Phase, state_in
from headgate.statistics.intervals import rate_interval

BAR_WIDTH = 20
INVALID = "Invalid"
"""The state of a Canary that is not accepted."""
STATE_STYLES = {
    Phase.PROGRESSING.value: "bold cyan",
    Phase.PAUSED.value: "bold yellow",
    Phase.PROMOTED.value: "bold green",
    Phase.ROLLED_BACK.value: "bold red",
    INVALID: "bold red",
}
ROLL_BACK_STYLE, PROMOTE_STYLE = "red", "green"
_PARTS_OF_A_BLOCK = " ▏▎▍▌▋▊▉"


class BackendRow(Input, frozen=True, kw_only=True):
    """A backend: its share of the root's traffic, and what the analysis has counted in this step.

    `requests` and `failures` are None if the analysis does not count them. `lowest` and `highest` bound the
    interval of the failure rate, from 0 to 1; None without requests.
    """

    service: str
    role: str
    share: float
    requests: int | None
    failures: int | None
    lowest: float | None
    highest: float | None


class RolloutStatus(Input, frozen=True, kw_only=True):
    """The status of a Canary for people and scripts. `confidence` is that of the intervals, from 0 to 1.

    `is_current` says whether a control plane has processed the last change to the spec and the last command.
    `state` is empty until a control plane has processed the Canary.
    """

    namespace: str
    name: str
    state: str
    message: str
    is_current: bool
    step: int
    step_count: int
    canary_share: str
    confidence: float
    backends: tuple[BackendRow, ...]
    criteria: tuple[CriterionEvidence, ...]

    @property
    def is_over(self) -> bool:
        """Whether the rollout has ended, and no later change is pending."""
        return self.is_current and self.state in (Phase.PROMOTED.value, Phase.ROLLED_BACK.value)


class DecisionProgress(NamedTuple):
    """How near the evidence is to a decision, from 0 to 1: one violated criterion rolls back, and a promotion needs all."""

    roll_back: float
    promote: float


def rollout_status(obj: Object) -> RolloutStatus:
    """Return the status of a Canary. Raises HeadgateError if it can't be decoded."""
    metadata, spec = obj["metadata"], obj["spec"]
    status = _decoded(obj)
    state, message = _state(status)
    typed = with_open_values(spec, CanarySpec)
    analysis, command = typed.analysis, typed.command
    error = float(analysis.tolerated_error) if analysis else 0.0
    roles = {analysis.canary: "canary", analysis.baseline: "baseline"} if analysis else {}
    total = sum(backend.weight for backend in status.backends)
    is_observed = status.observed_generation >= metadata.get("generation", 0)
    return RolloutStatus(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        state=state,
        message=message,
        is_current=is_observed and command in ("", state_in(obj).command),
        step=status.step,
        step_count=status.step_count,
        canary_share=status.canary_share,
        confidence=1 - error,
        backends=tuple(
            _row(backend, roles.get(backend.service, "primary" if roles else ""), total, error)
            for backend in status.backends
        ),
        criteria=status.criteria,
    )


def progress_of(status: RolloutStatus) -> DecisionProgress | None:
    """Return the evidence of all criteria together; None if the rollout has none."""
    if not status.criteria:
        return None
    promote = [_part(criterion.promote) for criterion in status.criteria if criterion.promote]
    return DecisionProgress(max(_part(criterion.roll_back) for criterion in status.criteria), min(promote, default=1.0))


def summary(obj: Object) -> str:
    """Return the state of a Canary in one line: the evidence of a running rollout, or why it does not run."""
    status = rollout_status(obj)
    progress = progress_of(status)
    if status.state != Phase.PROGRESSING.value or progress is None:
        return status.message.partition(";")[0]
    evidence = f"evidence to promote {progress.promote:.0%}, to roll back {progress.roll_back:.0%}"
    return f"{status.state}: step {status.step} of {status.step_count}, {status.canary_share}; {evidence}"


def picture(status: RolloutStatus, *more: RenderableType) -> Group:
    """Return the status as text and tables, followed by `more`."""
    title = Text.assemble(
        (f"Canary {status.namespace}/{status.name}", "bold"),
        "  ",
        (status.state or "Pending", STATE_STYLES.get(status.state, "")),
    )
    if status.step_count:
        title.append(f"  step {status.step} of {status.step_count}, {status.canary_share}")
    parts: list[RenderableType] = [title, WrappedText(status.message)]
    if status.backends:
        parts += ["", FittedTable(_backends(status))]
    if status.criteria:
        parts += ["", FittedTable(_criteria(status.criteria))]
    return Group(*parts, *more)


def _state(status: CanaryStatus) -> tuple[str, str]:
    """Return the state of the rollout in a word and in a sentence: that of the condition which decides."""
    by_type = {condition.type: condition for condition in status.conditions}
    accepted, programmed = by_type.get("Accepted"), by_type.get("Programmed")
    if accepted is None or programmed is None:
        return "", "no control plane has processed it yet"
    if accepted.status == "False":
        return INVALID, accepted.message
    promoted = by_type.get(PROMOTED)
    return (promoted.reason, promoted.message) if promoted else (Phase.SPLIT.value, programmed.message)


def _decoded(obj: Object) -> CanaryStatus:
    try:
        return msgspec.convert(obj.get("status") or {}, CanaryStatus)
    except msgspec.ValidationError as error:
        raise HeadgateError(
            f"the status of Canary {obj['metadata']['name']} can't be decoded; the control plane may have another "
            f"version: {error}"
        ) from error


def _row(backend: BackendCounts, role: str, total: int, error: float) -> BackendRow:
    low, high = rate_interval(backend.failures or 0, backend.requests, error) if backend.requests else (None, None)
    return BackendRow(
        service=backend.service,
        role=role,
        share=backend.weight / total if total else 0.0,
        requests=backend.requests,
        failures=backend.failures,
        lowest=low,
        highest=high,
    )


def _part(text: str) -> float:
    return float(parse_percentage(text))


def _backends(status: RolloutStatus) -> Table:
    titles = (
        "BACKEND",
        "ROLE",
        "SHARE",
        "REQUESTS",
        "FAILED",
        "RATE",
        f"{formatting.share(status.confidence)} INTERVAL",
    )
    shown = titles if any(row.role for row in status.backends) else (titles[0], titles[2])
    table = make_table(shown, right=titles[2:])
    for row in status.backends:
        cells = (row.service, row.role, formatting.share(row.share), *_counts(row))
        table.add_row(*cells if row.role else (cells[0], cells[2]))
    return table


def _counts(row: BackendRow) -> tuple[str, str, str, str]:
    """Return the number of requests, of failed ones, their rate and its interval."""
    if row.requests is None or row.failures is None:
        return NONE, NONE, NONE, NONE
    if row.lowest is None or row.highest is None:
        return str(row.requests), str(row.failures), NONE, NONE
    interval = f"{formatting.share(row.lowest)} .. {formatting.share(row.highest)}"
    return str(row.requests), str(row.failures), formatting.share(row.failures / row.requests), interval


def _criteria(criteria: Sequence[CriterionEvidence]) -> Table:
    table = make_table(("CRITERION", "EVIDENCE TO ROLL BACK", "EVIDENCE TO PROMOTE"))
    for criterion in criteria:
        promote = _bar(_part(criterion.promote), PROMOTE_STYLE) if criterion.promote else Text("none is needed")
        table.add_row(criterion.name, _bar(_part(criterion.roll_back), ROLL_BACK_STYLE), promote)
    return table


def _bar(part: float, style: str) -> Text:
    """Return a bar whose full length is a decision, and its percentage."""
    eighths = round(part * BAR_WIDTH * 8)
    blocks = "█" * (eighths // 8) + _PARTS_OF_A_BLOCK[eighths % 8].strip()
    return Text.assemble((blocks, style), ("·" * (BAR_WIDTH - len(blocks)), "dim"), f" {part:4.0%}")
