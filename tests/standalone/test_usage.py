"""kubectl top, with pods that use the processor and memory."""

from collections.abc import AsyncIterator

import pytest
from tests.embedded_api import KubectlPort
from tests.make.objects import container, pod
from tests.standalone.apiserver.pod_api import PodApi, running_pods
from tests.standalone.pods.machine import python

from headgate.standalone.usage import UsageMeter

BUSY = "x = bytearray(64 << 20)\nwhile True: pass"


@pytest.fixture
async def pods(embedded_port: KubectlPort, tmp_path) -> AsyncIterator[PodApi]:
    async with running_pods(embedded_port, tmp_path) as served:
        yield served


async def test_top_shows_the_processor_time_and_memory_of_containers(pods) -> None:
    busy = ["sh", "-c", '"$0" "$@" & wait', *python(BUSY)]  # children count too
    containers = [container("busy", command=busy)]
    containers.append(container("idle", command=["sleep", "3600"]))
    spec = {"terminationGracePeriodSeconds": 1}
    await pods.machine.store.create(pod("web", containers=containers, labels={"app": "web"}, **spec))
    await pods.machine.ready()
    rows = [line.split() for line in (await pods.api.ok("top", "pods", "--containers")).splitlines()]
    assert rows[0] == ["POD", "NAME", "CPU(cores)", "MEMORY(bytes)"]
    usages = {name: (int(cpu.removesuffix("m")), int(memory.removesuffix("Mi"))) for _, name, cpu, memory in rows[1:]}
    assert usages["busy"][0] > 50  # it has a processor, which other programs of a busy machine may need too
    assert usages["busy"][1] >= 64
    assert usages["idle"][0] < 50
    assert "web" in await pods.api.ok("top", "pod", "web")
    assert "web" in await pods.api.ok("top", "pods", "-l", "app=web")
    assert "web" not in (await pods.api.kubectl("top", "pods", "-l", "app=other")).out


async def test_top_shows_the_node(pods) -> None:
    await pods.run()
    rows = [line.split() for line in (await pods.api.ok("top", "nodes")).splitlines()]
    assert rows[1][0] == "local"
    assert int(rows[1][1].removesuffix("m")) > 0
    assert int(rows[1][3].removesuffix("Mi")) > 0


async def test_usage_of_unknown_pods_is_not_found(pods) -> None:
    ran = await pods.api.kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/web")
    assert (ran.code, "not found" in ran.err) == (1, True)
    for path in ("nodes/local/x", "namespaces/default/nodes", "pods/web", "other"):
        ran = await pods.api.kubectl("get", "--raw", f"/apis/metrics.k8s.io/v1beta1/{path}")
        assert (ran.code, "could not find the requested resource" in ran.err) == (1, True)


async def test_usage_is_explained(pods) -> None:
    explained = await pods.api.ok("explain", "podmetrics.containers", "--api-version=metrics.k8s.io/v1beta1")
    assert "The usage of each container" in explained


async def test_further_requests_do_not_shorten_the_least_window() -> None:
    meter = UsageMeter(dict, least_window_s=1.5)
    windows = [(await meter.measure()).window_s for _ in range(3)]
    meter_of_top = UsageMeter(dict)
    await meter_of_top.measure()
    windows.append((await meter.measure()).window_s)  # a second later
    assert min(windows) >= 1.5
