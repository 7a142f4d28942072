"""The share of requests whose trace a proxy begins, as users write it: a percentage (docs/traces.md)."""

import re

TRACE_SAMPLING = "headgate.dev/trace-sampling"
"""Annotation of a Namespace or a pod: the percentage of requests without a trace for which its sidecars begin a sampled one."""
_PERCENTAGE = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,2}))?")
_LARGEST = 10_000


def parse_sampling(text: str) -> int:
    """Return the percentage in `text` as ten-thousandths: `0.5` is 50. Raises ValueError with what to write."""
    found = _PERCENTAGE.fullmatch(text)
    share = int(found[1]) * 100 + int((found[2] or "").ljust(2, "0")) if found else _LARGEST + 1
    if share > _LARGEST:
        raise ValueError(
            f"must be a percentage from 0 to 100 with at most two decimals, such as 1 or 0.25, not {text!r}"
        )
    return share
