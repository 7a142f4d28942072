"""The indexes of an Indexed Job: of its pods, and as the text in its status (`0-2,5`)."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from headgate.resources.core.pod_spec import Pod

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""The annotation and label of a pod that has its index."""

_PART = re.compile(r"([0-9]{1,10})(?:-([0-9]{0,10}))?")


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


def from_text(text: str, *, below: int) -> frozenset[int]:
    """Return the indexes of a text that are lower than `below`; malformed parts are skipped."""
    return frozenset(chain.from_iterable(ranges(text, below=below)))


def ranges(text: str, *, below: int) -> Iterator[range]:
    """Yield the indexes in a text that are lower than `below`; malformed parts are skipped."""
    for match in filter(None, map(_PART.fullmatch, text.split(","))):
        yield range(int(match[1]), min(int(match[2] or match[1]) + 1, below))


def _span(first: int, last: int) -> str:
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
