"""The API of a Service that denies a caller: its rules, what explains them, and its revisions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Page, Route
from tests.dashboard.page_api import INSPECT, PageApi, edge, graph, node

OF_SHOP = f"{INSPECT}/namespaces/shop"
EXPLANATIONS = f"{OF_SHOP}/explanations"
PLANS = f"{INSPECT}/plans"
REVISIONS = f"{OF_SHOP}/revisions"
GRAPH = f"{OF_SHOP}/trafficgraphs/services"
GROUPS = "/apis/specs.smi-spec.io/v1alpha4/namespaces/shop/httproutegroups"
TARGETS = "/apis/access.smi-spec.io/v1alpha2/namespaces/shop/traffictargets"
NAME = "website-http-8080-from-shop.thief"
ROUTE = {
    "apiVersion": "specs.smi-spec.io/v1alpha4",
    "kind": "HTTPRouteGroup",
    "metadata": {"name": "all-requests", "namespace": "shop"},
    "spec": {"matches": [{"name": "all", "methods": ["*"]}]},
}
RULE: dict[str, Any] = {
    "apiVersion": "access.smi-spec.io/v1alpha2",
    "kind": "TrafficTarget",
    "metadata": {"name": NAME, "namespace": "shop"},
    "spec": {
        "destination": {"kind": "ServiceAccount", "name": "website", "port": 8080},
        "rules": [{"kind": "HTTPRouteGroup", "name": "all-requests"}],
    },
}
GROUP = {
    "apiVersion": "specs.smi-spec.io/v1alpha4",
    "kind": "HTTPRouteGroup",
    "metadata": {"name": "get-items", "namespace": "shop"},
    "spec": {"matches": [{"name": "get", "methods": ["GET"], "pathRegex": "/items$"}]},
}
NARROW = RULE | {
    "spec": RULE["spec"] | {"rules": [{"kind": "HTTPRouteGroup", "name": "get-items", "matches": ["get"]}]}
}


def explanation(pods: int = 1, **changes: Any) -> dict[str, Any]:
    """Return an Explanation of a request that the pods of the Service deny, with changes to the arrivals."""
    arrival = {
        "workload": "shop/website-1",
        "address": "10.0.0.1:8080",
        "transport": "MutualTLS",
        "allowed": False,
        "object": None,
        "rule": "",
        "remedyMessage": "create a TrafficTarget",
        "remedyObjects": [GROUP, NARROW],
        "wideRemedyObjects": [ROUTE, RULE],
    }
    arrivals = [arrival | {"message": f"no TrafficTarget allows it at {pod}"} | changes for pod in range(pods)]
    return {"status": {"backends": [{"arrivals": arrivals}]}}


def serve(api: PageApi) -> None:
    """Let the API have the Service shop/website, which denies its caller Deployment shop/thief, and take its rules."""
    nodes = [node("website"), node("thief", kind="Deployment"), node("cart")]
    calls = [edge(2, 0), edge(1, 0, denied=112)]
    api.objects |= {
        GRAPH: graph(nodes, calls),
        f"{OF_SHOP}/findings": {"objects": 1, "items": []},
        "/api/v1/namespaces/shop/services/website": {"spec": {"ports": [{"port": 8080}]}},
        EXPLANATIONS: explanation(),
        PLANS: {
            "status": {
                "differences": {
                    "lost": [],
                    "gained": [
                        {
                            "callersMessage": "ServiceAccount shop/thief",
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
        GROUPS: {"items": []},
        TARGETS: {"items": []},
        REVISIONS: {"items": [{"metadata": {"name": "4"}, "revision": 4, "changes": [], "effectMessages": []}]},
    }


def decision(**changes: Any) -> dict[str, Any]:
    """Return the whole Explanation of a request from Deployment shop/thief that two pods deny, with changes to the arrivals."""
    answer = explanation(2, **changes)["status"] | {
        "filterMessages": [],
        "location": "",
        "candidates": [],
        "mirrors": [],
    }
    backend = answer["backends"][0] | {"service": "shop/website", "port": 8080}
    answer |= {
        "backends": [backend | {"share": {"numerator": 1, "denominator": 1}}],
        "fallbackMessage": "",
        "remarks": [],
        "caller": {"object": None, "identity": "", "message": ""},
        "service": "shop/website",
        "gateway": "",
        "port": 8080,
        "protocol": "HTTP",
        "protocolMessage": "",
        "sanitizing": None,
        "revisionMessage": "",
        "stickiness": None,
    }
    return {"status": answer}


EXPLAIN = "/explain?url=http://website:8080/items&from=Deployment/thief&in=shop"


def revise(api: PageApi, number: int) -> None:
    """Add a revision of the namespace."""
    revision = {"metadata": {"name": str(number)}, "revision": number, "changes": [], "effectMessages": []}
    api.objects[REVISIONS] = {"items": [revision]}
    api.change(REVISIONS, "ADDED", revision)


@asynccontextmanager
async def held(page: Page, pattern: str) -> AsyncIterator[None]:
    """Hold requests until the end of the `with` block."""
    released = asyncio.Event()

    async def hold(route: Route) -> None:
        await released.wait()
        await route.continue_()

    await page.route(pattern, hold)
    try:
        yield
    finally:
        released.set()
