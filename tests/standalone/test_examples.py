"""The canary example on the local runtime, without proxies."""

import asyncio
import http.client
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.decoding import admitting
from tests.standalone.pods.machine import without_proxies
from tests.watching import until

from headgate.resources.meta import Object
from headgate.standalone.address_pool import AddressPool, claim_range
from headgate.standalone.controllers.services import service_admission, track_cluster_ips
from headgate.standalone.pods.runtime import LocalRuntime
from headgate.standalone.store.memory import MemoryStore

CANARY = Path(__file__).parents[2] / "examples" / "canary"


def objects() -> list[dict[str, Any]]:
    return [obj for path in sorted(CANARY.glob("*.yaml")) for obj in yaml.safe_load_all(path.read_text()) if obj]


def ask(address: str) -> str:
    connection = http.client.HTTPConnection(address, 8080, timeout=60)
    connection.request("GET", "/")
    answer = connection.getresponse().read().decode()
    connection.close()
    return answer


@pytest.fixture
async def ready(tmp_path: Path):
    a, guard = claim_range()
    addresses = AddressPool(a)
    store = MemoryStore(admit=admitting(service_admission(addresses)), kept=track_cluster_ips(addresses))
    for obj in objects():
        await store.create(obj)
    runtime = LocalRuntime(store, tmp_path, addresses, without_proxies())
    task = asyncio.create_task(runtime.run())

    async def all_ready() -> list[Object]:
        pods = list((await store.list("", "Pod")).items)
        ready = all("'Ready', 'status': 'True'" in str(pod.get("status")) for pod in pods)
        return pods if len(pods) == 4 and ready else []

    try:
        yield await until(store, all_ready, 60)
    finally:
        assert await runtime.stop() == []
        await task
        guard.close()


async def test_the_canary_example_runs_and_each_pod_answers_with_its_version_and_name(ready):
    answers = []
    for pod in ready:
        if pod["metadata"]["labels"]["app"] == "website":
            answer = await asyncio.to_thread(ask, pod["status"]["podIP"])
            assert answer.split()[1] == pod["metadata"]["name"]
            answers.append(answer.split()[0])
    assert sorted(answers) == ["v1", "v1", "v2"]


def test_the_canary_example_has_a_90_to_10_split_and_is_documented():
    kinds = sorted(f"{obj['kind']} {obj['metadata']['name']}" for obj in objects())
    assert "TrafficSplit website" in kinds
    assert not any("namespace" in obj["metadata"] for obj in objects())
    split = next(obj for obj in objects() if obj["kind"] == "TrafficSplit")
    assert [backend["weight"] for backend in split["spec"]["backends"]] == [90, 10]
    page = (Path(__file__).parents[2] / "docs" / "tasks" / "local-runtime.md").read_text()
    assert re.search(r"examples/canary", page)
