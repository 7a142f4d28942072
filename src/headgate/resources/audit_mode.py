"""Audit mode of the kinds that allow callers: the annotation, and the calls in their statuses that they would refuse."""

from collections.abc import Iterator
from typing import Annotated, Literal

from headgate.errors import Cause
from headgate.resources.call_records import CallProtocol
from headgate.resources.meta import Object, annotation
from headgate.resources.schema.declared import Field, StatusPart

MODE = "headgate.dev/mode"
AUDIT, ENFORCE = "audit", "enforce"
MODES = (AUDIT, ENFORCE)
"""The values of the annotation `headgate.dev/mode`; without it, the object is enforced."""
RefusalReason = Literal["NoTargetNamesCaller", "NoRuleMatches", "NoIdentity"]
"""Why an audit would refuse a call."""


class RefusedCaller(StatusPart, frozen=True, kw_only=True):
    """The `calls` (requests or connections) of one caller to a port that an audit would refuse."""

    caller: Annotated[str, Field("The ServiceAccount as namespace/name; for plaintext, the pod or the address.")]
    port: Annotated[int, Field("The port of the pods; 0 for ports of no Service.")]
    protocol: Annotated[CallProtocol, Field("The protocol.")]
    calls: Annotated[int, Field("The number of calls.")]
    reason: Annotated[
        RefusalReason,
        Field(
            "Why: no object names the caller, the rules of those that do match other calls, or the caller proves no "
            "identity."
        ),
    ]

    def __str__(self) -> str:
        port = f"port {self.port}" if self.port else "ports of no Service"
        return f"{self.caller} to {port} {self.calls} ({self.reason})"


class RefusedCalls(StatusPart, frozen=True, kw_only=True):
    """The calls that would be refused without audit mode."""

    start_time: Annotated[str, Field("When the counts began.", grammar="date-time")]
    calls: Annotated[int, Field("The number of calls.")]
    callers: Annotated[
        tuple[RefusedCaller, ...],
        Field("The callers with most calls.", item=Field("One caller, port and protocol.")),
    ]
    omitted_callers: Annotated[int, Field("The number of callers that the list omits.")]


WOULD_REFUSE = Field(
    "In audit mode: the calls (requests or connections) that would have been refused without it, since the current rules."
)


def is_audited(obj: Object) -> bool:
    """Return whether the annotation of an object is that of audit mode."""
    return annotation(obj, MODE) == AUDIT


def mode_causes(obj: Object) -> Iterator[Cause]:
    """Yield a mistake if the annotation `headgate.dev/mode` has an unknown value."""
    mode = annotation(obj, MODE)
    if isinstance(mode, str) and mode not in MODES:
        yield Cause(f"metadata.annotations.{MODE}", f"must be {' or '.join(MODES)}, not {mode!r}")
