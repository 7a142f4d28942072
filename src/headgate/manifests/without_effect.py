"""What headgate does not carry out of manifests, each in one line (D34)."""

from collections import Counter
from collections.abc import Iterable, Iterator

from headgate.formatting import pluralize
from headgate.manifests.files import Manifests

_MOST_KINDS = 12  # kinds that a line names


def stored_without_effect(manifests: Manifests) -> str:
    """Return how many objects of which kinds are only stored: `3 objects of 2 kinds are stored without effect: 2 Job, 1 Role`."""
    return _line(
        (manifest.key.kind for manifest in manifests.objects if manifest.kind.without_effect), "stored without effect"
    )


def left_out(manifests: Manifests) -> str:
    """Return how many objects are left out, because their kinds are neither built in nor defined; empty if there are none."""
    kinds = (f"{left.kind} ({left.api_version})" for left in manifests.left_out)
    line = _line(kinds, "left out, because no CustomResourceDefinition defines the kind")
    return line and f"{line}; add the definitions to the files to have the objects stored"


def lines(manifests: Manifests) -> Iterator[str]:
    """Yield a line about the objects that are only stored, and one about those that are left out."""
    yield from filter(None, (stored_without_effect(manifests), left_out(manifests)))


def _line(kinds: Iterable[str], what: str) -> str:
    counts = Counter(kinds)
    if not counts:
        return ""
    named = [f"{number} {kind}" for kind, number in sorted(counts.items())]
    more = f" and {len(named) - _MOST_KINDS} more kinds" if len(named) > _MOST_KINDS else ""
    total = counts.total()
    verb = "is" if total == 1 else "are"
    kinds_text = f" of {pluralize(len(counts), 'kind')}" if total > 1 else ""
    return f"{pluralize(total, 'object')}{kinds_text} {verb} {what}: {', '.join(named[:_MOST_KINDS])}{more}"
