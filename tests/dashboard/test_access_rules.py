"""The access rules of a Service on the page: what they decide about its callers, and the rule that is missing (R110, D21)."""

from typing import Any

import pytest
from playwright.async_api import Locator, expect
from tests.browser import assert_accessible, needs_axe, needs_chromium
from tests.dashboard.open_page import OpenPage
from tests.dashboard.page_api import INSPECT, PageApi, edge, graph, node

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]
OF_SHOP = f"{INSPECT}/namespaces/shop"
EXPLANATIONS = f"{OF_SHOP}/explanations"
PLANS = f"{INSPECT}/plans"
GROUPS = "/apis/specs.smi-spec.io/v1alpha4/namespaces/shop/httproutegroups"
TARGETS = "/apis/access.smi-spec.io/v1alpha2/namespaces/shop/traffictargets"
NAME = "website-http-8080-from-shop.thief"
ROUTE = {
    "apiVersion": "specs.smi-spec.io/v1alpha4",
    "kind": "HTTPRouteGroup",
    "metadata": {"name": "all-requests", "namespace": "shop"},
    "spec": {"matches": [{"name": "all", "methods": ["*"]}]},
}
RULE = {
    "apiVersion": "access.smi-spec.io/v1alpha2",
    "kind": "TrafficTarget",
    "metadata": {"name": NAME, "namespace": "shop"},
    "spec": {"destination": {"kind": "ServiceAccount", "name": "website", "port": 8080}},
}


def with_uid(obj: dict[str, Any], uid: str) -> dict[str, Any]:
    return obj | {"metadata": obj["metadata"] | {"uid": uid}}


def explanation() -> dict[str, Any]:
    """Return an Explanation of a request that the only pod of the Service denies."""
    arrival = {
        "workload": "shop/website-1",
        "address": "10.0.0.1:8080",
        "transport": "MutualTLS",
        "allowed": False,
        "object": None,
        "rule": "",
        "message": "no TrafficTarget allows it",
        "remedyMessage": "create a TrafficTarget",
        "remedyObjects": [ROUTE, RULE],
    }
    return {"status": {"backends": [{"arrivals": [arrival]}]}}


def serve(api: PageApi) -> None:
    """Let the API have the Service shop/website, which denies its caller Deployment shop/thief, and take its rules."""
    nodes = [node("website"), node("thief", kind="Deployment"), node("cart")]
    calls = [edge(2, 0), edge(1, 0, denied=112)]
    api.objects |= {
        f"{OF_SHOP}/trafficgraphs/services": graph(nodes, calls),
        f"{OF_SHOP}/findings": {"objects": 1, "items": []},
        "/api/v1/namespaces/shop/services/website": {"spec": {"ports": [{"port": 8080}]}},
        EXPLANATIONS: explanation(),
        PLANS: {
            "status": {
                "differences": {
                    "lost": [],
                    "gained": [
                        {
                            "callers": ["spiffe://cluster.local/ns/shop/sa/thief"],
                            "requestMessage": "any request",
                            "destination": "spiffe://cluster.local/ns/shop/sa/website",
                            "pods": [],
                            "port": 8080,
                        }
                    ],
                    "requests": [],
                    "tls": [],
                    "unreachable": [],
                    "findings": [],
                    "departures": [],
                    "clientCertificates": [],
                    "gateways": [],
                },
                "revisionMessage": "",
            }
        },
        GROUPS: with_uid(ROUTE, "u-1"),
        TARGETS: with_uid(RULE, "u-2"),
        f"{GROUPS}/all-requests": {},
        f"{TARGETS}/{NAME}": {},
    }


def access(opened: OpenPage) -> Locator:
    return opened.page.get_by_role("region", name="Access of its callers")


async def written_by(opened: OpenPage) -> Locator:
    """Open the Service, and the missing rule of its denied caller."""
    await opened.open("/service/shop/website")
    thief = access(opened).get_by_role("listitem").filter(has_text="Deployment shop/thief")
    button = thief.get_by_role("button", name="Write the missing TrafficTarget")
    await expect(button).to_be_visible()
    await button.click()
    return thief


def writes(api: PageApi) -> list[tuple[str, str]]:
    return [(method, path) for method, path, _ in api.written if path not in (EXPLANATIONS, PLANS)]


async def test_the_missing_rule_is_shown_planned_written_and_undone(opened: OpenPage) -> None:
    api = opened.api
    serve(api)
    thief = await written_by(opened)
    await expect(thief).to_contain_text("112 denied")
    await expect(thief.get_by_label("YAML of the missing rule")).to_contain_text(f"name: {NAME}")
    await expect(thief).to_contain_text(
        "access gained ServiceAccount shop/thief: any request to ServiceAccount shop/website, port 8080"
    )
    await expect(thief.get_by_text(f"kubectl apply -f {NAME}.yaml")).to_be_visible()
    assert writes(api) == []
    await thief.get_by_role("button", name="Apply", exact=True).click()
    await expect(thief.get_by_role("link", name=f"TrafficTarget shop/{NAME}")).to_be_visible()
    assert writes(api) == [("POST", GROUPS), ("POST", TARGETS)]
    undo = thief.get_by_role("button", name="Undo: delete the TrafficTarget")
    await undo.focus()
    await opened.page.keyboard.press("Enter")
    await expect(thief.get_by_role("button", name="Apply", exact=True)).to_be_enabled()
    # The route stays: other rules can refer to it by now.
    assert writes(api)[2:] == [("DELETE", f"{TARGETS}/{NAME}")]
    assert api.written[-1][2]["preconditions"] == {"uid": "u-2"}
    asked = [body["spec"] for _, path, body in api.written if path == EXPLANATIONS]
    assert asked == [
        {
            "url": "http://website.shop:8080/",
            "method": "GET",
            "headers": [],
            "caller": {"kind": "Deployment", "name": "thief"},
        }
    ]


async def test_a_rule_that_can_not_be_written_leaves_no_route_behind(opened: OpenPage) -> None:
    serve(opened.api)
    opened.api.errors[TARGETS] = 409
    thief = await written_by(opened)
    await thief.get_by_role("button", name="Apply", exact=True).click()
    await expect(thief.get_by_role("alert")).to_contain_text("The rule was not written")
    assert writes(opened.api) == [("POST", GROUPS), ("DELETE", f"{GROUPS}/all-requests")]


@pytest.mark.parametrize("resource", ["traffictargets", "httproutegroups"])
async def test_a_rule_is_not_offered_without_the_right_to_write_it(opened: OpenPage, resource: str) -> None:
    serve(opened.api)
    opened.api.denied.add(resource)
    await opened.open("/service/shop/website")
    await expect(access(opened)).to_contain_text("To allow it: create a TrafficTarget")
    await expect(access(opened).get_by_role("button")).to_have_count(0)


async def test_a_caller_without_the_right_to_explain_sees_the_counts(opened: OpenPage) -> None:
    serve(opened.api)
    opened.api.denied.add("explanations")
    await opened.open("/service/shop/website")
    await expect(access(opened)).to_contain_text("112 denied")
    assert not [path for path in opened.api.requested if path == EXPLANATIONS]


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation_in_a_missing_rule(opened: OpenPage, scheme: Any) -> None:
    serve(opened.api)
    await opened.page.emulate_media(color_scheme=scheme)
    await expect((await written_by(opened)).get_by_role("button", name="Apply", exact=True)).to_be_enabled()
    await assert_accessible(opened.page)
