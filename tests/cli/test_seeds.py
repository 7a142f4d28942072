"""Run `headgate check` on every YAML block of the specifications (D17, D27)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SEEDS = Path(__file__).parent / "seeds"


class Block(NamedTuple):
    name: str
    text: str
    findings: tuple[str, ...]


def blocks() -> Iterator[Block]:
    for file in sorted(SEEDS.glob("*.txt")):
        for number, part in enumerate(file.read_text().split("===\n")[1:], start=1):
            text, findings = part.split("--- findings\n")
            yield Block(f"{file.stem}-{number}", text, tuple(findings.splitlines()))


@pytest.mark.parametrize("block", tuple(blocks()), ids=lambda block: block.name)
def test_a_block_of_a_specification_has_exactly_its_recorded_findings(
    run: Callable[..., Any], tmp_path: Path, block: Block
) -> None:
    (tmp_path / "block.yaml").write_text(block.text)
    ended = run("check", "block.yaml")
    lines = [line.removeprefix("block.yaml:") for line in ended.out.splitlines()]
    assert len(lines) == len(block.findings), ended.out
    for line, expected in zip(lines, block.findings, strict=True):
        assert line.startswith(expected)
    assert ended.code == (1 if any(": error " in line for line in lines) else 0)


def test_all_blocks_of_the_five_documents_are_recorded() -> None:
    count = dict.fromkeys(("000", "001", "002", "003", "004"), 0)
    for block in blocks():
        count[block.name.partition("-")[0]] += 1
    assert count == {"000": 9, "001": 9, "002": 2, "003": 4, "004": 18}


@pytest.mark.parametrize("code", ["001", "003"])
def test_an_object_without_a_version_is_decoded_with_a_warning(code: str) -> None:
    """D27. The other findings are about fields that the blocks omit."""
    for block in (block for block in blocks() if block.name.startswith(code)):
        unversioned = [part for part in block.text.split("---\n") if "apiVersion" not in part]
        assert sum("ApiVersionMissing" in line for line in block.findings) == len(unversioned)
        assert not any(" Invalid " in line for line in block.findings)
