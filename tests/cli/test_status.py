"""`headgate status` against a served API."""

from typing import Any

import pytest
from tests.cli.conftest import World, make_split, service


@pytest.mark.parametrize(
    ("objects", "findings"),
    [
        ([], "none"),
        ([service("website", 8080), make_split({"gone": 1})], "1 warning"),
        ([service("website", 8080), make_split({"gone": 1, "lost": 1})], "2 warnings"),
    ],
)
async def test_status_counts_findings_by_severity(world: World, objects: list[Any], findings: str) -> None:
    for item in objects:
        await world.store.create(item)
    ended = await world.run("status")
    assert f"findings      {findings}\n" in ended.out
