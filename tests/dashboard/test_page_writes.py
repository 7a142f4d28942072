"""What the page writes, and what it does when others write too (R110)."""

import re
from typing import Any, Literal

import pytest
from playwright.async_api import expect
from tests.browser import needs_chromium
from tests.dashboard.open_page import MESH, OpenPage
from tests.dashboard.page_api import INSPECT, PageApi, changed, no_differences

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]
SPLITS = "/apis/split.smi-spec.io/v1alpha4/namespaces/shop/trafficsplits"
CANARIES = "/apis/headgate.dev/v1beta1/namespaces/shop/canaries"
PLANS = f"{INSPECT}/plans"


def backends(**weights: int) -> list[dict[str, Any]]:
    return [{"service": service, "weight": weight} for service, weight in weights.items()]


def serve_split(api: PageApi, **weights: int) -> dict[str, Any]:
    """Let the API have the TrafficSplit shop/website and answer plans; return the split."""
    split = {
        "apiVersion": "split.smi-spec.io/v1alpha4",
        "kind": "TrafficSplit",
        "metadata": {"uid": "1", "namespace": "shop", "name": "website", "resourceVersion": "1", "generation": 1},
        "spec": {"service": "website", "backends": backends(**weights)},
    }
    api.objects[PLANS] = no_differences()
    replace(api, SPLITS, split)
    return split


def replace(api: PageApi, path: str, obj: dict[str, Any]) -> None:
    """Let the API have an object at a path of its kind, alone, and send it to watches."""
    api.objects[path] = {"items": [obj]}
    api.objects[f"{path}/{obj['metadata']['name']}"] = obj
    api.change(path, "MODIFIED", obj)


@pytest.mark.parametrize(
    ("place", "role", "name"),
    [
        ("/splits/shop/website", "spinbutton", "Weight of v2"),
        ("/yaml/TrafficSplit.split.smi-spec.io/shop/website", "textbox", "YAML of the object"),
    ],
)
async def test_a_status_whose_event_is_still_to_come_is_no_conflict(
    opened: OpenPage, place: str, role: Literal["spinbutton", "textbox"], name: str
) -> None:
    """The control plane writes statuses right after a change, and a user may choose Undo before their events arrive."""
    page, api = opened.page, opened.api
    split = serve_split(api, v1=90, v2=10)
    await opened.open(place)
    edit = page.get_by_role(role, name=name)
    await expect(edit).to_have_value(re.compile("10"))
    await edit.fill((await edit.input_value()).replace("10", "30"))
    apply = page.get_by_role("button", name="Apply", exact=True)
    await expect(apply).to_be_enabled()
    api.objects[f"{SPLITS}/website"] = split | {"metadata": split["metadata"] | {"resourceVersion": "77"}}
    await apply.click()
    await expect(page.get_by_role("button", name=re.compile("^Undo"))).to_be_visible()
    assert api.objects[f"{SPLITS}/website"]["spec"]["backends"][1]["weight"] == 30


async def test_a_change_of_weights_by_another_writer_is_not_overwritten(opened: OpenPage) -> None:
    page, api = opened.page, opened.api
    split = serve_split(api, v1=90, v2=10)
    await opened.open("/splits/shop/website")
    weight = page.get_by_label("Weight of v2")
    await expect(weight).to_have_value("10")

    # Without an edit, the editor follows what another writer does.
    split = changed(split, backends=backends(v1=80, v2=20))
    replace(api, SPLITS, split)
    await expect(weight).to_have_value("20")

    await weight.fill("30")
    await expect(page.get_by_text("The change has no effect")).to_be_visible()
    replace(api, SPLITS, changed(split, backends=backends(v1=50, v2=20, v3=30)))
    await expect(page.get_by_text("The weights have changed meanwhile to v1 50, v2 20, v3 30.")).to_be_visible()
    await expect(page.get_by_role("button", name="Apply")).to_be_disabled()
    await expect(page.get_by_text("kubectl patch")).to_have_count(0)
    await page.get_by_role("button", name="Discard").click()
    await expect(page.get_by_label("Weight of v3", exact=True)).to_have_value("30")

    await weight.fill("40")
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("button", name="Undo: v1 50, v2 20, v3 30")).to_be_visible()
    await expect(weight).to_have_value("40")
    assert [body for method, _, body in api.written if method == "PATCH"] == [
        {"spec": {"backends": backends(v1=50, v2=40, v3=30)}, "metadata": {"resourceVersion": "3"}}
    ]
    plans = [body["spec"]["objects"][0]["spec"]["backends"] for _, path, body in api.written if path == PLANS]
    assert plans[0] == backends(v1=70, v2=30)


async def test_a_double_click_on_promote_promotes_one_step(opened: OpenPage) -> None:
    page, api = opened.page, opened.api
    promoted = {
        "type": "Promoted",
        "status": "False",
        "reason": "Progressing",
        "message": "Step 1",
        "observedGeneration": 1,
    }
    canary: dict[str, Any] = {
        "metadata": {"uid": "1", "namespace": "shop", "name": "website", "resourceVersion": "1", "generation": 1},
        "spec": {"service": "website", "analysis": {"canary": "v2"}},
        "status": {"observedGeneration": 1, "step": 1, "stepCount": 3, "canaryShare": "10 %", "conditions": [promoted]},
    }
    replace(api, CANARIES, canary)
    await opened.open("/rollouts/shop/website")
    promote = page.get_by_role("button", name="Promote")
    await promote.evaluate("button => { button.click(); button.click(); }")
    await promote.dblclick(force=True)  # as a user does: also while the button is disabled
    await expect(promote).to_be_disabled()
    await expect(page.get_by_role("button", name="Abort")).to_be_disabled()
    await expect(page.get_by_text("Further ones follow when headgate has acted on it.")).to_be_visible()

    canary = api.objects[f"{CANARIES}/website"]
    replace(api, CANARIES, canary)  # the controller has not observed the request
    observed = {
        "observedGeneration": 2,
        "step": 2,
        "conditions": [promoted | {"message": "Step 2", "observedGeneration": 2}],
    }
    await expect(promote).to_be_disabled()
    replace(api, CANARIES, canary | {"status": canary["status"] | observed})
    await expect(page.get_by_text("Step 2", exact=True)).to_be_visible()
    await expect(promote).to_be_enabled()
    assert [body["spec"]["request"]["action"] for _, path, body in api.written if path.startswith(CANARIES)] == [
        "Promote"
    ]


async def test_a_failed_write_says_that_it_was_not_written_and_is_not_repeated(opened: OpenPage) -> None:
    page, api = opened.page, opened.api
    serve_split(api, v1=90, v2=10)
    api.errors[f"{SPLITS}/website"] = 403
    api.errors[PLANS] = 503
    await opened.open("/splits/shop/website")
    await page.get_by_label("Weight of v2").fill("30")
    await expect(page.get_by_role("alert")).to_have_text(f"The effect is not known{PLANS} is not available")
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("alert").last).to_have_text(
        f"The change was not written{SPLITS}/website is not available"
    )


async def test_actions_that_stay_disabled_say_that_no_control_plane_answers(opened: OpenPage) -> None:
    page, api = opened.page, opened.api
    promoted = {"type": "Promoted", "status": "False", "reason": "Progressing", "message": "", "observedGeneration": 1}
    canary: dict[str, Any] = {
        "metadata": {"uid": "1", "namespace": "shop", "name": "website", "resourceVersion": "1", "generation": 1},
        "spec": {"service": "website", "analysis": {"canary": "v2"}},
        "status": {"observedGeneration": 1, "step": 1, "stepCount": 3, "canaryShare": "10 %", "conditions": [promoted]},
    }
    replace(api, CANARIES, canary)
    api.errors[MESH] = 503
    await opened.open("/rollouts/shop/website")
    await page.get_by_role("button", name="Promote").click()
    await expect(page.get_by_role("status").filter(has_text="No control plane answers")).to_contain_text(
        f"{MESH} is not available The action stays written until one runs."
    )


async def test_the_evidence_of_a_rollout_fits_a_phone(opened: OpenPage) -> None:
    criteria = [{"name": "success-rate-of-all-requests", "rollBack": "48%", "promote": "100%"}]
    canary: dict[str, Any] = {
        "metadata": {"uid": "1", "namespace": "shop", "name": "website", "resourceVersion": "1", "generation": 1},
        "spec": {"service": "website", "analysis": {"canary": "v2"}},
        "status": {"step": 1, "stepCount": 3, "canaryShare": "10 %", "criteria": criteria},
    }
    replace(opened.api, CANARIES, canary)
    await opened.page.set_viewport_size({"width": 390, "height": 800})
    await opened.open("/rollouts/shop/website")
    await expect(opened.page.get_by_role("region", name="Evidence for website")).to_be_visible()
    assert await opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
