"""The log level of a proxy on a cluster; tests/e2e/test_log_level.py has those of one machine, with real proxies."""

from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import pytest
from tests.cli.test_senders import inspected, proxy
from typer.testing import CliRunner

from headgate.cli import log_level
from headgate.cli.app import app
from headgate.cli.held_log_level import Order
from headgate.cli.inspect_client import InspectClient
from headgate.errors import HeadgateError
from headgate.kubernetes.pod_programs import PodContainer, ProgramFailed


class Programs:
    """What runs in the containers of pods; the program fails with `failure`, if there is one."""

    def __init__(self, failure: ProgramFailed | None) -> None:
        self.orders: list[tuple[PodContainer, Order]] = []
        self._failure = failure

    async def run(self, _: Any, container: PodContainer, command: Any, *, stdin: bytes) -> AsyncGenerator[bytes]:
        assert command == ("headgate", "sidecar", "log-level")
        if self._failure:
            raise self._failure
        self.orders.append((container, msgspec.json.decode(stdin, type=Order)))
        yield b"\n"


async def hold(monkeypatch: pytest.MonkeyPatch, failure: ProgramFailed | None = None) -> Programs:
    programs = Programs(failure)
    monkeypatch.setattr(log_level, "run_program", programs.run)
    client = inspected()
    client.client = cast("Any", None)
    await log_level.set_log_level(cast("InspectClient", client), proxy("web-1"), "debug", 30)
    return programs


async def test_on_a_cluster_a_program_in_the_container_holds_the_level(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = await hold(monkeypatch)
    order = Order(level="debug", seconds=30, socket="/run/headgate/admin.sock")
    assert programs.orders == [(PodContainer("shop", "web-1", "headgate-sidecar"), order)]
    assert capsys.readouterr().out.splitlines() == [
        "shop/web-1 logs at the level debug for 30 s, or until Ctrl-C",
        "shop/web-1 logs at its usual level again",
    ]


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (ProgramFailed("Usage: headgate sidecar", 2), "its image is of an older headgate"),
        (ProgramFailed("error: Envoy's admin interface does not answer", 3), "of shop/web-1: Envoy's admin"),
    ],
)
async def test_a_program_that_fails_is_an_error(
    monkeypatch: pytest.MonkeyPatch, failure: ProgramFailed, words: str
) -> None:
    with pytest.raises(HeadgateError, match=words):
        await hold(monkeypatch, failure)


def test_a_level_is_for_one_proxy() -> None:
    result = CliRunner().invoke(app, ["proxies", "--log-level", "debug"])
    assert result.exit_code == 2
