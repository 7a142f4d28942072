"""A fixture: the event loop of examples that change nothing."""

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of all examples of a module: their requests change nothing."""
    with asyncio.Runner() as runner:
        yield runner
