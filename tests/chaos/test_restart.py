"""The control plane is killed with SIGKILL and restarted under load: no request is lost."""

from collections import Counter
from collections.abc import Callable

import pytest
from tests.chaos.load import TimedLoad
from tests.chaos.machine import PODS, Up

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
Received = Callable[[], Counter[str]]
KILLS = 2


async def processes(up: Up) -> set[str]:
    """Return the containerID (`process://PID`) of every container."""
    pods = (await up.api.get(PODS))["items"]
    return {status["containerID"] for pod in pods for status in pod["status"]["containerStatuses"]}


async def test_no_request_is_lost_while_the_control_plane_is_killed_repeatedly(
    up: Up, load: TimedLoad, received: Received
) -> None:
    before = await processes(up)
    ready = up.ready
    for number in range(KILLS):
        await up.wait_until_active(await up.weights(v1=100 - number, v2=number, v3=0))
        await up.weights(v1=90 - number, v2=10 + number, v3=0)  # headgate is killed right after this write
        await up.kill()
        await up.start()
        await up.wait_until_active()
        assert await processes(up) == before
        assert up.ready["services"] == ready["services"]
        assert up.proxy == ready["proxy"]
    await load.stop()
    assert load.failed == []
    assert received() == load.backends
    assert "website-v3" not in load.backends
