"""The table of kinds in docs/reference/embedded-api.md agrees with the registry."""

import re
from pathlib import Path

from headgate.resources.kind import Kind
from headgate.resources.registry import KINDS

PAGE = Path(__file__).parents[2] / "docs/reference/embedded-api.md"


def row_of(kind: Kind) -> str:
    rows = [line for line in PAGE.read_text().splitlines() if re.match(rf"\|[^|]*\b{kind.kind}\b[^|]*\|", line)]
    group = kind.group or "v1"
    return next(
        row for row in rows if f"`{kind.group}`" in row or group in row.split("|")[2].replace("apps/v1", "apps")
    )


def test_the_docs_list_every_kind_with_its_versions_and_short_names() -> None:
    for kind in KINDS:
        row = row_of(kind)
        named = set(re.findall(r"\bv\d\w*", row.split("|")[2]))
        assert set(kind.versions) | {version for _, version in kind.aliases} == named, kind.kind
        assert set(kind.names.short) <= set(row.split("|")[3].replace("`", "").split()), kind.kind


def test_the_docs_list_no_unknown_short_names() -> None:
    table = PAGE.read_text().partition("## Kinds")[2].strip().partition("\n\n")[0]
    shown = {word for row in table.splitlines()[2:] for word in row.split("|")[3].replace("`", "").split()}
    assert shown == {short for kind in KINDS for short in kind.names.short}
