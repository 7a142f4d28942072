"""`kubectl get -w` of the inspect API, with the real kubectl, current and older."""

import asyncio

import pytest
from tests.api.inspect.inspect_fakes import FakeMesh, proxy
from tests.api.inspect.test_watches import WatchedMesh
from tests.embedded_api import EmbeddedApi, KubectlPort

from headgate.api.inspect import watches


async def test_kubectl_prints_each_change_once(
    port_of_each_kubectl: KubectlPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "PERIOD_S", 0.01)
    watched = WatchedMesh()
    async with port_of_each_kubectl.serving(watched.store, watched.app) as api:
        for arguments, expected in (
            (("proxies", "-A"), ["one", "one", "two", "two"]),
            (("proxies", "two", "-n", "b"), ["two", "two"]),
        ):
            watched.mesh.rows = FakeMesh().rows
            rows = await _printed(api, watched, arguments, len(expected))
            assert [row.split()[-8] for row in rows] == expected
            assert [row.split()[-7] for row in rows[-2:]] == ["Lagging", "InSync"]


async def _printed(api: EmbeddedApi, watched: WatchedMesh, arguments: tuple[str, ...], number: int) -> list[str]:
    """Return the rows of `kubectl get -w`; the proxy b/two changes once kubectl watches."""
    process = await asyncio.create_subprocess_exec(
        *api.command("get", *arguments, "-w"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    try:
        async with asyncio.timeout(60):
            rows = [(await process.stdout.readline()).decode() for _ in range(number)][1:]
            await watched.computed()
            watched.mesh.rows = [*watched.mesh.rows[:2], proxy("b", "two")]
            rows.append((await process.stdout.readline()).decode())
    finally:
        process.terminate()
        await process.wait()
    return rows
