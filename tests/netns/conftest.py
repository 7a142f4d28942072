"""One bridge for each module, and its pods."""

import pytest
from tests.netns.wires import Hub, missing


@pytest.fixture(scope="session", autouse=True)
def _possible():
    if reason := missing():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def hub(_possible):
    found = Hub()
    yield found
    found.close()
