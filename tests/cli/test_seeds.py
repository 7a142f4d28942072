"""Every block of YAML in the specifications, sent through `headgate check` as it is written there (D17, D27)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SEEDS = Path(__file__).parent / "seeds"


class Block(NamedTuple):
    name: str
    text: str
    said: tuple[str, ...]


def blocks() -> Iterator[Block]:
    for file in sorted(SEEDS.glob("*.txt")):
        for number, part in enumerate(file.read_text().split("===\n")[1:], start=1):
            text, said = part.split("--- said\n")
            yield Block(f"{file.stem}-{number}", text, tuple(said.splitlines()))


@pytest.mark.parametrize("block", tuple(blocks()), ids=lambda block: block.name)
def test_a_block_of_a_specification_is_read_or_refused_with_the_reason(
    run: Callable[..., Any], tmp_path: Path, block: Block
) -> None:
    (tmp_path / "block.yaml").write_text(block.text)
    ended = run("check", "block.yaml")
    lines = [line.removeprefix("block.yaml:") for line in ended.out.splitlines()]
    assert len(lines) == len(block.said), ended.out
    for line, said in zip(lines, block.said, strict=True):
        assert line.startswith(said)
    assert ended.code == (1 if any(": error " in line for line in lines) else 0)


def test_all_five_documents_are_there() -> None:
    count = dict.fromkeys(("000", "001", "002", "003", "004"), 0)
    for block in blocks():
        count[block.name.partition("-")[0]] += 1
    assert count == {"000": 9, "001": 9, "002": 2, "003": 4, "004": 18}


@pytest.mark.parametrize("code", ["001", "003"])
def test_what_a_document_writes_without_a_version_is_read_with_a_warning(code: str) -> None:
    """D27: every object without apiVersion; the rest of what is said is about what the blocks leave out."""
    for block in (block for block in blocks() if block.name.startswith(code)):
        unversioned = [part for part in block.text.split("---\n") if "apiVersion" not in part]
        assert sum("ApiVersionMissing" in line for line in block.said) == len(unversioned)
        assert not any(" Invalid " in line for line in block.said)
