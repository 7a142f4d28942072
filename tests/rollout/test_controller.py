"""The controller writes statuses, splits and Events, and any replica continues what another one began (R108, R109, D19)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web
from tests.make.objects import service
from tests.make.rollouts import message_of, state_of
from tests.rollout.canaries import ANALYSIS, requests, website_canary
from tests.rollout.controller_rig import POD, RolloutRig, run

from headgate.envoy.stats_sink import CLUSTER_SECONDS
from headgate.resources.meta import Key
from headgate.resources.registry import CANARY, ROUTE_GROUP, TRAFFIC_SPLIT
from headgate.resources.smi.split_fields import MIRROR, STICKY
from headgate.rollout.controller import WRITE_S
from headgate.rollout.state import REPORT_S
from headgate.telemetry.counters.flows import Flow


def test_a_canary_without_analysis_is_a_split_and_creates_its_root_service() -> None:
    """004's example; R32: the root Service is created when absent, and has the shares 10 and 90."""

    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary(analysis=None))
        async with rig.replica():
            await rig.serve("v1", "v2")
            await asyncio.sleep(3)
            assert await rig.weights() == {"v1": 9, "v2": 1}
            root = await rig.store.get(Key("", "Service", "default", "website"))
            assert root["spec"]["ports"][0]["appProtocol"] == "http"
            status = await rig.status(key)
            assert (state_of(status), status["observedGeneration"]) == ("Split", 1)
            assert [item["type"] for item in status["conditions"] if item["status"] == "True"] == [
                "Accepted",
                "ResolvedRefs",
                "Programmed",
            ]

    run(scenario)


def test_backends_of_other_namespaces_count_by_their_written_names() -> None:
    backends = [{"service": "v1", "weight": "900m"}, {"service": "v2.next", "weight": "100m"}]

    async def scenario(rig: RolloutRig) -> None:
        analysis = {**ANALYSIS, "canary": "v2.next", "mirror": "20%"}
        key = await rig.create(website_canary(backends=backends, analysis=analysis))
        async with rig.replica():
            await asyncio.sleep(3)
            assert await rig.mirror() == "v2.next=20%"
            await rig.load(60, v1=requests(90), copies=requests(18))
            assert await rig.weights() == {"v1": 9, "v2.next": 1}
            for _ in range(60):
                rig.increments.add(
                    Flow(source=POD, destination=POD, service="default/website", backend="next/v2"),
                    requests(10, failed=5),
                )
                await rig.load(1, v1=requests(90))
            status = await rig.status(key)
            assert (state_of(status), await rig.weights()) == ("RolledBack", {"v1": 1, "v2.next": 0})
            assert "more requests fail than at v1; v2.next failed " in message_of(status)

    run(scenario)


def test_a_healthy_rollout_ends_with_all_weight_on_the_canary_and_says_that_the_old_version_is_unused() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary())
        async with rig.replica():
            await rig.load(200, v1=requests(90), v2=requests(10))
            assert await rig.weights() == {"v1": 0, "v2": 1}
            status = await rig.status(key)
            assert state_of(status) == "Promoted"
            assert {item["type"] for item in status["conditions"] if item["status"] == "True"} == {
                "Accepted",
                "ResolvedRefs",
                "Programmed",
                "Promoted",
                "OldVersionUnused",
            }
            assert sorted(await rig.events()) == ["Progressing", "Progressing", "Promoted"]

    run(scenario)


def test_requests_from_before_a_step_are_no_evidence_although_they_are_reported_in_it() -> None:
    """A report has the requests since the last one, 5 s before on a cluster."""

    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary())
        async with rig.replica():
            await rig.load(5, v1=requests(90), v2=requests(10, failed=10))
            await rig.load(20, v1=requests(90), v2=requests(10))
            status = await rig.status(key)
            assert state_of(status) == "Progressing"
            assert [row["failures"] for row in status["backends"]] == [0, 0]

    run(scenario)


def test_the_old_version_counts_as_used_until_every_proxy_has_the_weight_0() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary(analysis={**ANALYSIS, "steps": []}))
        async with rig.replica():
            await rig.load(5, v1=requests(90), v2=requests(10))
            rig.acknowledging.clear()
            await rig.load(100, v1=requests(90), v2=requests(10))
            assert await rig.weights() == {"v1": 0, "v2": 1}
            unused = {item["type"]: item["status"] for item in (await rig.status(key))["conditions"]}
            assert (unused["Promoted"], unused["OldVersionUnused"]) == ("True", "False")
            rig.acknowledging.set()
            await asyncio.sleep(3)
            unused = {item["type"]: item["status"] for item in (await rig.status(key))["conditions"]}
            assert unused["OldVersionUnused"] == "True"

    run(scenario)


def test_another_replica_continues_with_the_evidence_of_the_last_one() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary())
        for _ in range(20):  # each replica is killed after a few seconds
            async with rig.replica():
                await rig.load(9, v1=requests(90), v2=requests(10))
            if state_of(await rig.status(key)) == "Promoted":
                break
        assert state_of(await rig.status(key)) == "Promoted"
        assert await rig.weights() == {"v1": 0, "v2": 1}

    run(scenario)


def test_a_replica_sets_the_weights_that_a_killed_one_had_decided() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary())
        async with rig.replica():
            await rig.load(5, v1=requests(90), v2=requests(10))
        obj = await rig.store.get(key)
        state = {**obj["status"]["rollout"], "step": 1, "since": 0.0}
        decided = {**obj["status"], "rollout": state}
        await rig.store.update({**obj, "status": decided}, subresource="status")
        async with rig.replica():
            await asyncio.sleep(3)
            assert await rig.weights() == {"v1": 1, "v2": 1}
            assert (await rig.status(key))["step"] == 2

    run(scenario)


def test_a_command_is_active_when_every_proxy_has_its_weights() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary(analysis={**ANALYSIS, "steps": []}))
        async with rig.replica():
            await asyncio.sleep(3)
            rig.acknowledging.clear()
            await rig.command(key, "Promote/1")
            await asyncio.sleep(10)
            assert await rig.weights() == {"v1": 0, "v2": 1}
            assert await rig.conditions(key) >= {"Promoted=True", "Programmed=False", "OldVersionUnused=False"}
            rig.acknowledging.set()
            await asyncio.sleep(10)
            assert await rig.conditions(key) >= {"Promoted=True", "Programmed=True", "OldVersionUnused=True"}

    run(scenario)


def test_an_edited_split_is_left_alone_until_the_user_resumes_the_rollout() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary())
        async with rig.replica():
            await asyncio.sleep(3)
            split = await rig.store.get(TRAFFIC_SPLIT.key("default", "website"))
            backends = [{"service": "v1", "weight": 1}, {"service": "v2", "weight": 3}]
            await rig.store.update({**split, "spec": {**split["spec"], "backends": backends}})
            await rig.load(60, v1=requests(10), v2=requests(30, failed=9))
            status = await rig.status(key)
            assert (state_of(status), await rig.weights()) == ("Paused", {"v1": 1, "v2": 3})
            assert "edited" in message_of(status)
            assert {row["service"]: row["weight"] for row in status["backends"]} == {"v1": 1, "v2": 3}
            await rig.command(key, "Resume/1")
            await asyncio.sleep(3)
            assert (state_of(await rig.status(key)), await rig.weights()) == ("Progressing", {"v1": 9, "v2": 1})

    run(scenario)


def test_matches_that_a_user_wrote_into_the_split_are_removed_when_the_rollout_resumes() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary())
        async with rig.replica():
            await asyncio.sleep(3)
            split = await rig.store.get(TRAFFIC_SPLIT.key("default", "website"))
            matches = [{"kind": "HTTPRouteGroup", "name": "api"}]
            await rig.store.update({**split, "spec": {**split["spec"], "matches": matches}})
            await asyncio.sleep(3)
            assert state_of(await rig.status(key)) == "Paused"
            await rig.command(key, "Resume/1")
            await asyncio.sleep(3)
            assert state_of(await rig.status(key)) == "Progressing"
            split = await rig.store.get(TRAFFIC_SPLIT.key("default", "website"))
            assert not split["spec"].get("matches")

    run(scenario)


def test_a_deleted_split_is_created_again_and_a_deleted_canary_takes_its_split_along() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary())
        async with rig.replica():
            await asyncio.sleep(3)
            await rig.store.delete(TRAFFIC_SPLIT.key("default", "website"))
            await asyncio.sleep(3)
            assert await rig.weights() == {"v1": 9, "v2": 1}
            await rig.store.delete(key)
            await asyncio.sleep(3)
            assert await rig.weights() is None

    run(scenario)


def test_a_rollout_that_begins_again_after_a_conflict_does_not_obey_an_old_command() -> None:
    async def scenario(rig: RolloutRig) -> None:
        obj = website_canary()
        obj["spec"]["request"] = {"action": "Promote", "id": "1"}
        key = await rig.create(obj)
        split_key = TRAFFIC_SPLIT.key("default", "website")
        async with rig.replica():
            await asyncio.sleep(3)
            assert await rig.weights() == {"v1": 1, "v2": 1}
            split = await rig.store.get(split_key)
            await rig.store.update({**split, "metadata": {**split["metadata"], "ownerReferences": []}})
            await asyncio.sleep(3)
            assert state_of(await rig.status(key)) == "Invalid"
            await rig.store.delete(split_key)
            await asyncio.sleep(3)
            assert await rig.weights() == {"v1": 9, "v2": 1}

    run(scenario)


def test_of_two_canaries_of_a_service_the_older_wins_and_the_younger_says_so() -> None:
    async def scenario(rig: RolloutRig) -> None:
        first = await rig.create(website_canary(name="b-first"))
        second = await rig.create(website_canary(name="c-second"))
        async with rig.replica():
            await asyncio.sleep(3)
            assert state_of(await rig.status(first)) == "Progressing"
            status = await rig.status(second)
            assert state_of(status) == "Invalid"
            assert "already belongs to Canary default/b-first" in message_of(status)
            assert await rig.weights("c-second") is None
            await rig.store.delete(first)
            await asyncio.sleep(3)
            assert state_of(await rig.status(second)) == "Progressing"

    run(scenario)


def test_a_status_that_could_not_be_written_is_written_later() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary(analysis=None))
        async with rig.replica():
            rig.acknowledging.clear()
            await asyncio.sleep(10)
            rig.store.failing = 1
            rig.acknowledging.set()
            await asyncio.sleep(60)
            assert await rig.conditions(key) >= {"Accepted=True", "Programmed=True"}

    run(scenario)


def test_an_invalid_canary_does_not_stop_other_canaries() -> None:
    async def scenario(rig: RolloutRig) -> None:
        broken: Any = website_canary(name="broken")
        del broken["spec"]["service"]
        await rig.create(broken)
        await rig.create({**website_canary(name="empty"), "spec": None})
        key = await rig.create(website_canary())
        async with rig.replica():
            await asyncio.sleep(3)
            assert state_of(await rig.status(key)) == "Progressing"

    run(scenario)


def test_a_canary_may_be_deleted_while_its_status_is_written(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(rig: RolloutRig) -> None:
        key, other = await rig.create(website_canary()), await rig.create(website_canary(name="other", service="other"))
        rig.store.slow.set(True)
        async with rig.replica():
            await asyncio.sleep(1)
            await rig.store.delete(key)
            await rig.store.delete(other)
            await asyncio.sleep(1)
            rig.store.slow.set(False)
            await asyncio.sleep(3)
            await rig.create(website_canary())
            await asyncio.sleep(3)
            assert state_of(await rig.status(key)) == "Progressing"
        assert not [record for record in caplog.records if record.levelname == "ERROR"]

    run(scenario)


def test_a_canary_that_replaces_one_of_the_same_name_begins_its_own_rollout() -> None:
    """A new list after a broken watch has the new Canary, and no deletion of the old one."""

    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary())
        async with rig.replica():
            await rig.command(key, "Abort/1")
            await rig.until_state(key, "RolledBack")
            async with rig.store.broken_watches():
                await rig.store.delete(key)
                await rig.create(website_canary())
            await asyncio.sleep(60)
            assert (state_of(await rig.status(key)), await rig.weights()) == ("Progressing", {"v1": 9, "v2": 1})

    run(scenario)


def test_a_split_of_a_user_is_not_taken_over() -> None:
    async def scenario(rig: RolloutRig) -> None:
        backends = [{"service": "v1", "weight": 1}]
        split = {
            "apiVersion": TRAFFIC_SPLIT.hub,
            "kind": "TrafficSplit",
            "metadata": {"name": "website", "namespace": "default"},
            "spec": {"service": "website", "backends": backends},
        }
        await rig.create(split)
        key = await rig.create(website_canary())
        async with rig.replica():
            await asyncio.sleep(3)
            assert "exists and does not belong to the Canary; delete it" in message_of(await rig.status(key))
            assert await rig.weights() == {"v1": 1}
            await rig.store.delete(TRAFFIC_SPLIT.key("default", "website"))
            await asyncio.sleep(3)
            assert await rig.weights() == {"v1": 9, "v2": 1}

    run(scenario)


def test_a_rollout_with_copies_asks_for_them_in_its_first_step_only() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary(analysis={**ANALYSIS, "mirror": "20%"}))
        async with rig.replica():
            await asyncio.sleep(3)
            assert (await rig.weights(), await rig.mirror()) == ({"v1": 1, "v2": 0}, "v2=20%")
        async with rig.replica():  # it continues where the first one was killed
            await rig.load(100, v1=requests(90), copies=requests(18))
            assert (await rig.weights(), await rig.mirror()) == ({"v1": 9, "v2": 1}, None)
            assert (await rig.status(key))["step"] == 2

    run(scenario)


def test_an_annotation_of_canaries_that_a_user_adds_to_the_split_is_removed_and_does_not_stop_the_rollout() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key, name = await rig.create(website_canary()), TRAFFIC_SPLIT.key("default", "website")
        async with rig.replica():
            await asyncio.sleep(3)
            split = await rig.store.get(name)
            before = split["metadata"]["annotations"]
            annotations = {**before, MIRROR: "v2=5%", STICKY: "source", "example.com/team": "shop"}
            await rig.store.update({**split, "metadata": {**split["metadata"], "annotations": annotations}})
            await asyncio.sleep(3)
            split = await rig.store.get(name)
            assert split["metadata"]["annotations"] == {**before, "example.com/team": "shop"}
            await rig.load(200, v1=requests(90), v2=requests(10))
            assert state_of(await rig.status(key)) == "Promoted"

    run(scenario)


def test_the_copies_end_when_they_cause_a_rollback() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary(analysis={**ANALYSIS, "mirror": "20%"}))
        async with rig.replica():
            await rig.load(60, v1=requests(90), copies=requests(18, failed=5))
            assert (await rig.weights(), await rig.mirror()) == ({"v1": 1, "v2": 0}, None)
            assert state_of(await rig.status(key)) == "RolledBack"

    run(scenario)


def test_in_a_step_with_matches_a_group_and_a_second_split_send_only_those_requests_to_the_canary() -> None:
    async def scenario(rig: RolloutRig) -> None:
        match = [{"name": "testers", "headers": {"x-tester": "yes"}}]
        key = await rig.create(website_canary(analysis={**ANALYSIS, "matches": match}))
        rig.acknowledging.clear()
        async with rig.replica():
            await rig.load(3, v1=requests(90), v2=requests(10))
            found = await rig.match()
            assert found is not None
            group, split = found
            assert group == {"matches": match}
            assert split["backends"] == [{"service": "v2", "weight": 1}]
            reference = {"apiGroup": "specs.smi-spec.io", "kind": "HTTPRouteGroup", "name": "website-match"}
            assert split["matches"] == [reference]
            assert await rig.weights() == {"v1": 1, "v2": 0}
            assert "waiting until every proxy has the weights" in message_of(await rig.status(key))
            rig.acknowledging.set()
        async with rig.replica():
            await asyncio.sleep(3)
            await rig.store.delete(TRAFFIC_SPLIT.key("default", "website-match"))
            await asyncio.sleep(3)
            assert await rig.match() is not None, "a deleted object is created again"
            await rig.load(100, v1=requests(90), v2=requests(10))
            assert (await rig.weights(), await rig.match()) == ({"v1": 9, "v2": 1}, None)

    run(scenario)


def test_the_reports_that_are_left_out_are_those_of_one_interval_on_a_cluster() -> None:
    assert REPORT_S == CLUSTER_SECONDS


def test_the_status_says_when_counting_begins_and_later_that_requests_are_missing() -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary())
        async with rig.replica():
            await asyncio.sleep(1)
            assert "counting begins in " in message_of(await rig.status(key))
            await asyncio.sleep(2 * REPORT_S + WRITE_S)
            assert "no request to v2 has counted yet" in message_of(await rig.status(key))
            revision = rig.store.revision
            await asyncio.sleep(60)
            assert rig.store.revision == revision, "an unchanged status is not written again"

    run(scenario)


def test_a_group_of_a_user_is_not_taken_over() -> None:
    async def scenario(rig: RolloutRig) -> None:
        spec = {"matches": [{"name": "all", "pathRegex": "/"}]}
        metadata = {"name": "website-match", "namespace": "default"}
        await rig.create({"apiVersion": ROUTE_GROUP.hub, "kind": ROUTE_GROUP.kind, "metadata": metadata, "spec": spec})
        match = [{"name": "testers", "headers": {"x-tester": "yes"}}]
        key = await rig.create(website_canary(analysis={**ANALYSIS, "matches": match}))
        async with rig.replica():
            await asyncio.sleep(3)
            message = message_of(await rig.status(key))
            assert "HTTPRouteGroup default/website-match exists and does not belong to the Canary; delete it" in message
            obj = await rig.store.get(key)
            await rig.store.update({**obj, "spec": website_canary()["spec"]})
            await asyncio.sleep(3)
            assert state_of(await rig.status(key)) == "Progressing", "without a match the name is not needed"


def test_a_refusal_of_the_rollout_before_a_restart_does_not_count() -> None:
    async def scenario(rig: RolloutRig) -> None:
        status, app = [403], web.Application()

        async def handle(_: web.Request) -> web.Response:
            return web.Response(status=status[0])

        app.router.add_post("/", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        await rig.store.create(service("tests", port, clusterIP="127.0.0.1"))
        await rig.serve("v1", "v2")
        hook = {"name": "check", "when": "Before", "service": "tests", "port": port}
        key = await rig.create(website_canary(analysis={**ANALYSIS, "webhooks": [hook]}))
        async with rig.replica():
            await rig.until_state(key, "RolledBack")
            status[0] = 200
            await rig.command(key, "Restart/1")
            await rig.until_state(key, "Progressing")
            await asyncio.sleep(60)
            assert (state_of(await rig.status(key)), await rig.weights()) == ("Progressing", {"v1": 9, "v2": 1})
        await runner.cleanup()

    run(scenario)


@pytest.mark.parametrize("analysis", [None, ANALYSIS], ids=["split", "analysis"])
def test_without_requests_nothing_is_written(analysis: Mapping[str, Any] | None) -> None:
    async def scenario(rig: RolloutRig) -> None:
        key = await rig.create(website_canary(analysis=analysis))
        async with rig.replica():
            await asyncio.sleep(20)  # the message of the first seconds is replaced once
            before = (await rig.store.get(key))["metadata"]["resourceVersion"]
            await asyncio.sleep(3600)
            assert (await rig.store.get(key))["metadata"]["resourceVersion"] == before
            assert len((await rig.store.list(CANARY.group, CANARY.kind)).items) == 1

    run(scenario)
