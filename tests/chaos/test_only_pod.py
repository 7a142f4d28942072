"""The only pod of a Deployment is replaced under load: no request is lost (D31)."""

from collections import Counter
from collections.abc import Callable

import pytest
from tests.chaos.load import TimedLoad
from tests.chaos.machine import DEPLOYMENTS, PODS, Up, replace_pods, until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
Received = Callable[[], Counter[str]]
GRACE_S = 30


async def test_no_request_is_lost_while_the_only_pod_is_replaced(up: Up, load: TimedLoad, received: Received) -> None:
    """D31: the old pod serves until its grace period ends, and until then it gets the requests if no other pod is ready."""
    container = (await up.api.get(f"{DEPLOYMENTS}/website-v1"))["spec"]["template"]["spec"]["containers"][0]
    shell = {**container, "command": ["sh", "-c", "trap '' TERM; exec \"$@\"", "sh", *container["command"]]}
    template = {"spec": {"terminationGracePeriodSeconds": GRACE_S, "containers": [shell]}}
    await replace_pods(up, {"template": template}, 2)

    async def gone() -> bool:
        return len((await up.api.get(f"{PODS}?labelSelector=version%3Dv1"))["items"]) == 2

    await until(gone, "the end of the first pods, which do not outlive SIGTERM")
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    template = {"metadata": {"annotations": {"version": "next"}}}
    await replace_pods(up, {"replicas": 1, "strategy": strategy, "template": template}, 1)
    await load.stop()
    await up.kill()  # a stop would wait for the grace period, because the pod ignores SIGTERM
    assert load.failed == []
    assert received() == load.backends
