"""The controller creates the root Service of a Canary if there is none (R32)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.rollout.canaries import ANALYSIS, website_canary
from tests.rollout.controller_rig import RolloutRig, run

from headgate.resources.meta import Key


@pytest.mark.parametrize("analysis", [None, ANALYSIS])
def test_a_deleted_root_service_is_created_again(analysis: Mapping[str, Any] | None) -> None:
    root = Key("", "Service", "default", "website")

    async def scenario(rig: RolloutRig) -> None:
        await rig.create(website_canary(analysis=analysis))
        async with rig.replica():
            await rig.serve("v1", "v2")
            await asyncio.sleep(3)
            await rig.know()
            await asyncio.sleep(3)
            first = await rig.store.get(root)
            await rig.store.delete(root)
            await rig.know()
            await asyncio.sleep(3)
            assert (await rig.store.get(root))["metadata"]["uid"] != first["metadata"]["uid"]

    run(scenario)


@pytest.mark.parametrize("root", ["website.default", "website.default.svc.cluster.local"])
def test_a_root_service_with_a_domain_name_is_created_by_its_name(root: str) -> None:
    async def scenario(rig: RolloutRig) -> None:
        await rig.create(website_canary(analysis=None, service=root))
        async with rig.replica():
            await rig.serve("v1", "v2")
            await asyncio.sleep(3)
            assert (await rig.store.get(Key("", "Service", "default", "website")))["spec"]["ports"]

    run(scenario)


def test_a_root_service_of_another_namespace_is_not_created() -> None:
    async def scenario(rig: RolloutRig) -> None:
        await rig.create(website_canary(analysis=None, service="website.other"))
        async with rig.replica():
            await rig.serve("v1", "v2")
            await asyncio.sleep(3)
            names = {obj["metadata"]["name"] for obj in (await rig.store.list("", "Service")).items}
            assert names == {"v1", "v2"}

    run(scenario)


def test_a_root_service_is_created_once_a_backend_exists() -> None:
    async def scenario(rig: RolloutRig) -> None:
        await rig.create(website_canary(analysis=None))
        async with rig.replica():
            await asyncio.sleep(60)
            await rig.serve("v1", "v2")
            await asyncio.sleep(3)
            assert (await rig.store.get(Key("", "Service", "default", "website")))["spec"]["ports"]

    run(scenario)
