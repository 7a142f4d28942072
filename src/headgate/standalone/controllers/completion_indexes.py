"""The indexes of an Indexed Job: of its pods, and as the text in its status (`0-2,5`)."""

from collections.abc import Iterable

from headgate.resources.core.pod_spec import Pod

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""The annotation and label of a pod that has its index."""


def index_of(pod: Pod) -> int | None:
    """Return the completion index of a pod; None if it has none."""
    text = pod.metadata.annotations.get(COMPLETION_INDEX, "")
    return int(text) if text.isdecimal() else None


def to_text(indexes: Iterable[int]) -> str:
    """Return indexes as text: `0-2,5` for 0, 1, 2 and 5. Two neighbors are two numbers, as in Kubernetes: `0,1`."""
    parts: list[str] = []
    rising = sorted(indexes)
    position = 0
    while position < len(rising):
        last = position
        while last + 1 < len(rising) and rising[last + 1] == rising[last] + 1:
            last += 1
        parts.append(str(rising[position]) if last == position else _span(rising[position], rising[last]))
        position = last + 1
    return ",".join(parts)


def from_text(text: str) -> frozenset[int]:
    """Return the indexes of a text; malformed parts are skipped."""
    indexes: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            indexes.update(range(int(first), int(last or first) + 1))
    return frozenset(indexes)


def _span(first: int, last: int) -> str:
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
