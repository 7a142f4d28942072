"""`headgate status` against a served API."""

from typing import Any

import pytest
from tests.cli.conftest import ServedMesh
from tests.make import objects


@pytest.mark.parametrize(
    ("objects", "findings"),
    [
        ([], "none"),
        ([objects.service("website", 8080), objects.split("website", {"gone": 1})], "1 warning"),
        ([objects.service("website", 8080), objects.split("website", {"gone": 1, "lost": 1})], "2 warnings"),
    ],
)
async def test_status_counts_findings_by_severity(served: ServedMesh, objects: list[Any], findings: str) -> None:
    for item in objects:
        await served.store.create(item)
    ended = await served.run("status")
    assert f"findings      {findings}\n" in ended.out
