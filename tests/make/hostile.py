"""Hypothesis strategies for JSON that no honest client sends, and the errors that a server logs meanwhile."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st

from headgate.resources.meta import Object

HUGE = "9" * 5000
"""More digits than `int` of Python converts."""
NAMES = ("website", "default", "none")
FIELDS = (
    *("apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations", "spec", "status", "data"),
    *("preconditions", "deleteOptions", "uid", "resourceVersion", "propagationPolicy", "dryRun", "managedFields"),
    *("ownerReferences", "finalizers", "containers", "template", "ports", "replicas", "backends", "service", "items"),
    *("$patch", "$retainKeys", "$setElementOrder/ports", "$deleteFromPrimitiveList/finalizers", "op", "path", "from"),
)

DEPTHS = (150, 400, 700, 950)
"""Levels of lists; Python's functions recurse about 1,000 times."""


def nested(depth: int) -> str:
    """Return a text for which `encoded` writes an empty list in lists."""
    return f"nested {depth}"


def encoded(value: Any, *, with_numbers: bool = False) -> bytes:
    """Return a value as JSON, with nested lists, and `with_numbers` with the number HUGE for its text."""
    text = json.dumps(value)
    for depth in DEPTHS:
        text = text.replace(f'"{nested(depth)}"', "[" * depth + "]" * depth)
    return (text.replace(f'"{HUGE}"', HUGE) if with_numbers else text).encode()


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 3),
    st.just(10**400),
    st.just(1e300),
    st.sampled_from(
        ("", "1", "a", "replace", "delete", "merge", "/spec/ports/-", "/metadata", "copy", "\x00", "é", HUGE)
    ),
    st.sampled_from(NAMES),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)),
    max_leaves=8,
)


@st.composite
def broken(draw: st.DrawFn, obj: Object) -> Any:
    """Draw an object with one arbitrary part."""
    broken_obj: Any = json.loads(json.dumps(obj))
    part = broken_obj
    while True:
        field = draw(st.sampled_from((*part, *part, *FIELDS))) if isinstance(part, dict) else 0
        inner = part[field] if isinstance(part, list) else part.get(field)
        if not inner or not isinstance(inner, dict | list) or draw(st.integers(0, 3)) == 0:
            deep = st.sampled_from(DEPTHS).map(nested)
            part[field] = draw(values if draw(st.integers(0, 9)) else deep)
            return broken_obj
        part = inner


@contextmanager
def logged_errors() -> Iterator[Sequence[str]]:
    """Collect the errors that are logged meanwhile, with their tracebacks."""
    log = _Errors()
    logging.getLogger().addHandler(log)
    try:
        yield log.texts
    finally:
        logging.getLogger().removeHandler(log)


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))
