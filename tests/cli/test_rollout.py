"""`headgate rollout` against a served API, whose Canaries the real rollout controller reconciles."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text
from tests.cli.conftest import ServedMesh, ended
from tests.make import objects
from tests.make.rollouts import conditions_of, state_of
from tests.rollout.canaries import ANALYSIS, website_canary

from headgate.cli.output import print_whole
from headgate.cli.rollout_status import RolloutStatus, picture, rollout_status, summary
from headgate.cli.rollout_watch import show
from headgate.compiler.snapshot import Snapshot
from headgate.latest import Latest
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Ports
from headgate.resources.meta import Key, Object
from headgate.resources.registry import CANARY, TRAFFIC_SPLIT
from headgate.rollout.controller import RolloutController
from headgate.telemetry.increments import Increments

WEBSITE = CANARY.key("default", "website")
MESSAGE = "step 1 of 3, 10% to v2: nothing is decided"
COUNTED: dict[str, Any] = {
    "observedGeneration": 1,
    "conditions": conditions_of("Progressing", MESSAGE),
    "step": 1,
    "stepCount": 3,
    "canaryShare": "10%",
    "backends": [
        {"service": "v1", "weight": 9, "requests": 900, "failures": 9},
        {"service": "v2", "weight": 1, "requests": 100, "failures": 3},
    ],
    "criteria": [
        {"name": "success", "rollBack": "58%", "promote": "12%"},
        {"name": "success.min", "rollBack": "0%"},
    ],
}


def with_status(obj: Object, **status: Any) -> Object:
    """Return a Canary of generation 1 with a status."""
    return {**obj, "metadata": {**obj["metadata"], "generation": 1}, "status": {**COUNTED, **status}}


@pytest.fixture
async def controlled(served: ServedMesh) -> AsyncIterator[ServedMesh]:
    """A served in which a rollout controller runs, without proxies and requests."""
    ports = Ports(served.store, EventRecorder(served.store, "headgate"), Latest(value=True))
    snapshot: Latest[Snapshot | None] = Latest(None)
    task = asyncio.create_task(RolloutController(ports, Increments(), snapshot, "cluster.local").run())
    yield served
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def stored(served: ServedMesh, key: Key = WEBSITE, *, state: str = "") -> Object:
    """Return an object once its rollout has a state."""
    async for change in served.store.watch(key.group, key.kind, since="0"):
        if change.key == key and (not state or state_of(change.object.get("status") or {}) == state):
            return await served.store.get(key)
    raise AssertionError("a watch never ends")


async def test_status_shows_requests_with_intervals_and_evidence_as_bars(served: ServedMesh) -> None:
    await served.store.create(website_canary())
    await served.status(website_canary(), COUNTED)
    ran = await served.run("rollout", "status", "website")
    assert ran.code == 0, ran.err
    lines = [line.rstrip() for line in ran.out.splitlines()]
    assert lines[0] == "Canary default/website  Progressing  step 1 of 3, 10%"
    assert lines[1] == MESSAGE
    assert lines[3].split() == ["BACKEND", "ROLE", "SHARE", "REQUESTS", "FAILED", "RATE", "99%", "INTERVAL"]
    assert lines[5].split()[:6] == ["v2", "canary", "10%", "100", "3", "3%"]
    assert "success      ███████████▋········  58%  ██▍·················  12%" in lines
    assert lines[-1] == "success.min  ····················   0%  none is needed"
    document = json.loads((await served.run("rollout", "status", "website", "-o", "json")).out)
    assert document["backends"][1]["failures"] == 3
    assert 0 < document["backends"][1]["lowest"] < 0.03 < document["backends"][1]["highest"] < 0.2
    assert document["criteria"][0] == {"name": "success", "rollBack": "58%", "promote": "12%"}


async def test_a_canary_without_analysis_or_without_a_control_plane_has_a_status_too(served: ServedMesh) -> None:
    await served.store.create(website_canary(analysis=None))
    ran = await served.run("rollout", "status", "website")
    assert (ran.code, ran.out) == (0, "Canary default/website  Pending\nno control plane has processed it yet\n")
    backends = [{"service": "v1", "weight": 9}, {"service": "v2", "weight": 1}]
    await served.status(
        website_canary(), {"observedGeneration": 1, "conditions": conditions_of("Split", "fixed"), "backends": backends}
    )
    ran = await served.run("rollout", "status", "website")
    assert [line.split() for line in ran.out.splitlines()[3:]] == [["BACKEND", "SHARE"], ["v1", "90%"], ["v2", "10%"]]


async def test_pause_and_resume_set_spec_paused_and_return_when_the_controller_has_obeyed(
    controlled: ServedMesh,
) -> None:
    await controlled.store.create(website_canary())
    await stored(controlled, state="Progressing")
    ran = await controlled.run("rollout", "pause", "website")
    assert ran.code == 0, ran.err
    obj = await controlled.store.get(WEBSITE)
    assert (obj["spec"]["paused"], state_of(obj["status"])) == (True, "Paused")
    ran = await controlled.run("rollout", "resume", "website", "-o", "json")
    obj = await controlled.store.get(WEBSITE)
    assert (obj["spec"]["paused"], json.loads(ran.out)["state"]) == (False, "Progressing")
    assert "request" not in obj["spec"]


async def test_promote_abort_and_restart_are_obeyed_and_each_has_its_own_id(controlled: ServedMesh) -> None:
    await controlled.store.create(website_canary())
    await stored(controlled, state="Progressing")
    ran = await controlled.run("rollout", "promote", "website")
    assert (ran.code, ran.out.startswith("canary/website: step 2 of 3, 50% to v2")) == (0, True), ran.err
    first = (await controlled.store.get(WEBSITE))["spec"]["request"]
    ran = await controlled.run("rollout", "promote", "website")
    assert ran.out.startswith("canary/website: promoted by a user")
    second = (await controlled.store.get(WEBSITE))["spec"]["request"]
    assert first["action"] == "Promote"
    assert re.fullmatch(r"[0-9a-f]{8}", first["id"])
    assert first != second
    ran = await controlled.run("rollout", "restart", "website")
    assert ran.out.startswith("canary/website: step 1 of 3, 10% to v2")
    ran = await controlled.run("rollout", "abort", "website")
    assert ran.out == "canary/website: rolled back at step 1 of 3, 10%: aborted by a user\n"


async def test_resume_sets_the_weights_again_after_an_edit_of_the_split(controlled: ServedMesh) -> None:
    await controlled.store.create(website_canary())
    await stored(controlled, state="Progressing")
    split_key = TRAFFIC_SPLIT.key("default", "website")
    split = await stored(controlled, split_key)
    backends = [{"service": "v1", "weight": 1}, {"service": "v2", "weight": 3}]
    edited = await controlled.store.update({**split, "spec": {**split["spec"], "backends": backends}})
    await stored(controlled, state="Paused")
    ran = await controlled.run("rollout", "resume", "website")
    assert ran.code == 0, ran.err
    since = edited["metadata"]["resourceVersion"]
    change = await anext(aiter(controlled.store.watch(TRAFFIC_SPLIT.group, TRAFFIC_SPLIT.kind, since=since)))
    assert [row["weight"] for row in change.object["spec"]["backends"]] == [9, 1]
    assert state_of((await controlled.store.get(WEBSITE))["status"]) == "Progressing"


@pytest.mark.parametrize(
    ("change", "status", "expected"),
    [
        ("promote", {"conditions": conditions_of("Promoted")}, "is already Promoted"),
        (
            "abort",
            {"conditions": conditions_of("RolledBack")},
            "`headgate rollout restart website` begins with the first step again",
        ),
        ("promote", {"conditions": conditions_of("Invalid", "the split exists")}, "has no rollout: the split exists"),
        (
            "resume",
            {"conditions": conditions_of("Paused"), "rollout": {"pause": "the step has a pause"}},
            "`headgate rollout promote website` begins the next one",
        ),
    ],
)
async def test_a_change_without_an_effect_is_an_error_and_writes_nothing(
    served: ServedMesh, change: str, status: Any, expected: str
) -> None:
    await served.store.create(website_canary())
    await served.status(website_canary(), {**COUNTED, **status})
    before = await served.store.get(WEBSITE)
    ran = await served.run("rollout", change, "website")
    assert (ran.code, expected in ran.err) == (1, True), ran.err
    assert await served.store.get(WEBSITE) == before


async def test_a_canary_without_analysis_can_not_be_promoted(served: ServedMesh) -> None:
    await served.store.create(website_canary(analysis=None))
    for action in ("promote", "watch"):
        ran = await served.run("rollout", action, "website")
        assert (ran.code, "has no rollout, because it has no spec.analysis" in ran.err) == (1, True)


async def test_a_command_that_no_control_plane_obeys_times_out_and_says_so(served: ServedMesh) -> None:
    await served.store.create(website_canary())
    await served.status(website_canary(), COUNTED)
    ran = await served.run("rollout", "promote", "website", "--timeout", "500ms")
    assert (ran.code, "no control plane has obeyed it after 0.5 s; `headgate status` shows" in ran.err) == (
        124,
        True,
    ), ran.err
    for action in ("pause", "watch"):
        ran = await served.run("rollout", action, "other")
        assert (ran.code, "Canary default/other not found" in ran.err, "are: website" in ran.err) == (1, True, True)


async def test_watch_prints_a_line_for_each_change_and_exits_with_1_after_a_rollback(served: ServedMesh) -> None:
    await served.store.create(website_canary())
    await served.status(website_canary(), COUNTED)
    process = await served.start("rollout", "watch", "website")
    assert (await process.stdout.readline()).decode()[9:] == f"Progressing: {MESSAGE}\n"
    await served.status(website_canary(), {**COUNTED, "conditions": conditions_of("RolledBack", "rolled back")})
    ran = await ended(process)
    assert (ran.code, ran.out[9:]) == (1, "RolledBack: rolled back\n")
    await served.status(website_canary(), {**COUNTED, "conditions": conditions_of("Promoted", "promoted")})
    assert (await served.run("rollout", "watch", "website")).code == 0
    assert (await served.run("rollout", "watch", "website", "-o", "json")).code == 2


async def test_watch_goes_on_until_a_pending_restart_is_obeyed(served: ServedMesh) -> None:
    restarted = website_canary()
    restarted["spec"]["request"] = {"action": "Restart", "id": "1"}
    await served.store.create(restarted)
    await served.status(website_canary(), {**COUNTED, "conditions": conditions_of("RolledBack", "rolled back")})
    process = await served.start("rollout", "watch", "website")
    assert b"RolledBack" in await process.stdout.readline()
    over = {"conditions": conditions_of("Promoted", "promoted"), "rollout": {"command": "Restart/1"}}
    await served.status(website_canary(), {**COUNTED, **over})
    assert (await ended(process)).code == 0


async def test_watch_ends_when_the_canary_is_deleted(served: ServedMesh) -> None:
    await served.store.create(website_canary())
    process = await served.start("rollout", "watch", "website")
    await process.stdout.readline()
    await served.store.delete(WEBSITE)
    ran = await ended(process)
    assert (ran.code, "Canary default/website was deleted" in ran.err) == (1, True)


async def test_a_terminal_shows_the_evidence_over_time_with_a_mark_between_steps() -> None:
    async def updates() -> AsyncIterator[RolloutStatus]:
        for step, promote in ((1, 0), (1, 50), (1, 90), (2, 0), (3, 100)):  # step 3 has the evidence of step 2
            criteria = [{"name": "success", "rollBack": "30%", "promote": f"{promote}%"}]
            state = "Promoted" if promote == 100 else "Progressing"
            yield rollout_status(
                with_status(website_canary(), step=step, criteria=criteria, conditions=conditions_of(state))
            )

    terminal = Console(file=io.StringIO(), force_terminal=True, width=80, height=24, color_system=None)
    last = await show(updates(), terminal)
    assert last.state == "Promoted"
    lines = [line.split() for line in terminal.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert lines[-2:] == [["roll", "back", "▃▃▃│▃▃", "30%"], ["promote", "▁▄▇│▁█", "100%"]]


async def test_a_narrow_terminal_shows_the_newest_evidence() -> None:
    async def updates() -> AsyncIterator[RolloutStatus]:
        for number in range(101):
            criteria = [{"name": "success", "rollBack": f"{number}%", "promote": "0%"}]
            state = "RolledBack" if number == 100 else "Progressing"
            yield rollout_status(with_status(website_canary(), criteria=criteria, conditions=conditions_of(state)))

    terminal = Console(file=io.StringIO(), force_terminal=True, width=40, height=24, color_system=None)
    await show(updates(), terminal)
    lines = terminal.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines[-2:])) <= 40
    assert "▇█  100%" in lines[-2]


LONG = "website-payments-with-a-long-name"
LONG_STATUS: dict[str, Any] = {
    "conditions": conditions_of(
        "Promoted",
        f"step 1 of 3, 10% to {LONG}-v2: nothing is decided; more requests are needed from clients of the root",
    ),
    "backends": [
        {"service": f"{LONG}-v1", "weight": 9, "requests": 90_012, "failures": 912},
        {"service": f"{LONG}-v2", "weight": 1, "requests": 10_012, "failures": 33},
    ],
    "criteria": [
        {"name": "success", "rollBack": "58%", "promote": "12%"},
        {"name": "latency.99%.maxIncrease", "rollBack": "0%"},
    ],
}
LONG_WORDS = {
    f"{LONG}-v1",
    f"{LONG}-v2:",
    "90012",
    "1.01%",
    "0.13%",
    "latency.99%.maxIncrease",
    "███████████▋········",
}


@pytest.mark.parametrize("width", [60, 80, 100, 160])
async def test_status_and_watch_break_and_cut_no_word(width: int) -> None:
    over = with_status(website_canary(), **LONG_STATUS)
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=80, color_system=None)
    print_whole(console, picture(rollout_status(over)))
    shown = Console(file=io.StringIO(), force_terminal=True, width=width, height=80, color_system=None)

    async def updates() -> AsyncIterator[RolloutStatus]:
        yield rollout_status(over)

    await show(updates(), shown)
    for terminal in (console, shown):
        text = Text.from_ansi(terminal.file.getvalue()).plain  # type: ignore[attr-defined]
        assert max(map(len, text.splitlines())) <= width
        assert set(text.split()) >= LONG_WORDS


def test_the_summary_names_the_least_evidence_to_promote_and_the_most_to_roll_back() -> None:
    criteria = [
        {"name": "success", "rollBack": "3%", "promote": "40%"},
        {"name": "p99.max", "rollBack": "58%", "promote": "12%"},
    ]
    obj = with_status(website_canary(), criteria=criteria)
    assert summary(obj) == "Progressing: step 1 of 3, 10%; evidence to promote 12%, to roll back 58%"
    message = "rolled back at step 1 of 3, 10%: more requests fail than at v1; v2 failed 3 of 100 requests"
    assert (
        summary(with_status(website_canary(), conditions=conditions_of("RolledBack", message)))
        == message.partition(";")[0]
    )


async def test_wait_waits_until_every_proxy_has_the_weights_of_a_canary(served: ServedMesh) -> None:
    await served.store.create(website_canary(analysis={**ANALYSIS, "dryRun": True}))
    message = "every proxy has the weights of the TrafficSplit"
    condition = {"type": "Programmed", "status": "True", "reason": "Programmed", "message": message}
    conditions = [{**condition, "observedGeneration": 1}]
    await served.status(website_canary(), {**COUNTED, "conditions": conditions})
    step = "step 1 of 3, 10%"
    assert (await served.run("wait", "canary/website")).out == f"canary/website: {step}: {message}\n"

    counted = "7 of 7 proxies have the configuration"
    split = objects.split("website", {"v1": 9, "v2": 1})
    await served.store.create(split)
    await served.status(split, {"conditions": [{**conditions[0], "message": counted}]})
    assert (await served.run("wait", "canary/website")).out == f"canary/website: {step}: {counted}\n"
