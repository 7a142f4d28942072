"""Shell completion: names of existing objects, and no output when the API does not respond."""

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.cli.conftest import ServedMesh, invoke
from tests.make import objects
from tests.rollout.canaries import website_canary

from headgate.cli import completion


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return a function that returns the candidates of bash for a command line, on a busy machine too."""
    monkeypatch.setattr(completion, "TIMEOUT_S", 60)
    monkeypatch.setenv("_HEADGATE_COMPLETE", "complete_bash")

    def candidates(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        ran = invoke()
        assert ran.err == ""
        return ran.out.split()

    return candidates


async def put(served: ServedMesh) -> None:
    for item in (
        objects.service("website", 8080),
        objects.split("website", {"website": 1}, name="canary"),
        objects.split("website", {"website": 1}, name="ab"),
    ):
        await served.store.create(item)
    await served.store.create(website_canary())
    for kind, name in (("Pod", "web-1"), ("ServiceAccount", "buyer")):
        await served.store.create(objects.obj(kind, name))


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("headgate wait traf", ["trafficsplit/", "traffictarget/"]),
        ("headgate wait trafficsplit/", ["trafficsplit/ab", "trafficsplit/canary"]),
        ("headgate wait trafficsplit/c", ["trafficsplit/canary"]),
        ("headgate wait -n nowhere trafficsplit/", []),
        ("headgate logs we", ["web-1"]),
        ("headgate logs dep", ["deployment/"]),
        ("headgate explain --from pod/", ["pod/web-1"]),
        ("headgate try --from serviceaccount/b", ["serviceaccount/buyer"]),
        ("headgate explain --via ", ["gateway/"]),
        ("headgate proxies ", ["gateway"]),
        ("headgate config g", ["gateway"]),
        ("headgate config gateway l", ["listeners"]),
        ("headgate rollout re", ["restart", "resume"]),
        ("headgate rollout pause w", ["website"]),
        ("headgate wait can", ["canary/"]),
    ],
)
async def test_the_shell_completes_names_of_objects(
    served: ServedMesh, tab: Callable[[str], list[str]], line: str, offered: list[str]
) -> None:
    await put(served)
    assert sorted(await asyncio.to_thread(tab, line)) == offered


def test_completion_prints_nothing_while_no_headgate_runs(tab: Callable[[str], list[str]]) -> None:
    assert tab("headgate wait trafficsplit/") == []
    assert tab("headgate proxies ") == []


def test_the_program_completes_like_the_function(tab: Callable[[str], list[str]]) -> None:
    commands = tab("headgate ro")
    assert commands
    done = subprocess.run([sys.executable, "-m", "headgate"], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (commands, "")
