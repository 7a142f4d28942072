"""Shell completion: names of existing objects, and no output when the API does not respond."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import World, make_split, service
from tests.rollout.canaries import canary

PROGRAM = "from headgate.cli import completion, main; completion.TIMEOUT_S = 60; main()"
"""A program that runs headgate with a longer timeout for completion, for busy machines."""


def tab(state: Path, line: str) -> list[str]:
    """Return the candidates of bash for a command line."""
    environment = {name: text for name, text in os.environ.items() if name != "KUBECONFIG"}
    words = line.split(" ")
    environment |= {
        "HOME": str(state.parent),
        "_HEADGATE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    program = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(program, env=environment, cwd=state.parent, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


async def put(world: World) -> None:
    for item in (service("website", 8080), make_split({"website": 1}, "canary"), make_split({"website": 1}, "ab")):
        await world.store.create(item)
    await world.store.create(canary())
    for kind, name in (("Pod", "web-1"), ("ServiceAccount", "buyer")):
        await world.store.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}})


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
async def test_the_shell_completes_names_of_objects(world: World, line: str, offered: list[str]) -> None:
    await put(world)

    found = await asyncio.to_thread(tab, world.state, line)
    assert sorted(found) == offered


def test_completion_prints_nothing_while_no_headgate_runs(tmp_path: Path) -> None:
    assert tab(tmp_path / ".headgate", "headgate wait trafficsplit/") == []
    assert tab(tmp_path / ".headgate", "headgate proxies ") == []
