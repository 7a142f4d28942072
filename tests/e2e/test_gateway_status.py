"""Gateways and routes through kubectl: rejected fields, addresses and statuses."""

import json
from pathlib import Path
from typing import Any

from tests.e2e.manifests import external
from tests.e2e.running_mesh import RunningMesh
from tests.make.objects import Object, gateway, manifest, route, rule
from tests.waiting import until
from tests.wire import Address, Request

EXAMPLE = Path(__file__).parents[2] / "examples" / "gateway" / "gateway.yaml"


def edge_gateway(*listeners: Object) -> str:
    return manifest(gateway("edge", *listeners, namespace=""))


def route_to_web(name: str, *parents: Object, backend: str = "web") -> str:
    return manifest(route(name, rule({backend: 1}), parents=parents, namespace=""))


def conditions(entry: Any) -> dict[str, tuple[str, str]]:
    return {item["type"]: (item["status"], item["reason"]) for item in entry["conditions"]}


HTTP = {"name": "http", "port": 18080, "protocol": "HTTP"}


def test_the_gateway_class_of_headgate_is_accepted(mesh: RunningMesh) -> None:
    def accepted() -> bool:
        return conditions(mesh.get("gatewayclass/headgate")["status"]) == {"Accepted": ("True", "Accepted")}

    until(accepted)
    assert "headgate.dev/gateway-controller" in mesh.kubectl("get", "gatewayclass")


def test_the_status_of_a_gateway_and_its_routes_says_whether_they_are_programmed(
    mesh: RunningMesh, namespace: str
) -> None:
    parents = {"name": "edge"}, {"name": "edge", "sectionName": "none"}, {"name": "web", "kind": "Service", "group": ""}
    mesh.apply(
        external("web", mesh.backend("web")),
        edge_gateway(HTTP),
        route_to_web("one", *parents[:1], parents[2]),
        namespace=namespace,
    )
    mesh.apply(route_to_web("two", parents[1], backend="missing"), namespace=namespace)

    def status(what: str) -> Any:
        return mesh.get(what, namespace)["status"]

    def programmed() -> bool:
        found = status("gateway/edge")
        assert conditions(found)["Programmed"] == ("True", "Programmed"), found
        assert conditions(found["listeners"][0])["Programmed"] == ("True", "Programmed"), found
        return bool(found["listeners"][0]["attachedRoutes"] == 1)

    until(programmed, "the gateway's status")
    (address,) = status("gateway/edge")["addresses"]
    assert address["value"].startswith("127.")

    def attached() -> bool:
        entries = status("httproute/one")["parents"]
        assert [entry["parentRef"]["name"] for entry in entries] == ["edge", "web"]
        good = {kind: ("True", kind) for kind in ("Accepted", "ResolvedRefs")}
        good["headgate.dev/Programmed"] = "True", "Programmed"
        assert [conditions(entry) for entry in entries] == [good, good], entries
        return True

    until(attached, "the status of the route `one`")

    def refused() -> bool:
        (entry,) = status("httproute/two")["parents"]
        assert conditions(entry)["Accepted"] == ("False", "NoMatchingParent")
        assert conditions(entry)["ResolvedRefs"] == ("False", "BackendNotFound")
        assert conditions(entry)["headgate.dev/Programmed"] == ("False", "Invalid")
        return True

    until(refused, "the status of the route `two`")
    row = mesh.kubectl("get", "httproute", "one", "-n", namespace, "--no-headers").split()
    assert row[:4] == ["one", "<none>", "True", "True"]
    assert mesh.event("NoMatchingParent", "two", namespace)[0] == "Warning"


def test_a_gateway_is_not_accepted_until_its_parameters_reference_is_removed(mesh: RunningMesh, namespace: str) -> None:
    def patch(reference: object) -> None:
        spec = json.dumps({"spec": {"infrastructure": {"parametersRef": reference}}})
        mesh.kubectl("patch", "gateway", "edge", "-n", namespace, "--type", "merge", "-p", spec)

    def accepted() -> tuple[str, str]:
        return conditions(mesh.get("gateway/edge", namespace)["status"])["Accepted"]

    mesh.apply(edge_gateway(HTTP), namespace=namespace)
    patch({"group": "example.com", "kind": "Settings", "name": "none"})
    until(lambda: accepted() == ("False", "InvalidParameters"), "InvalidParameters")
    patch(None)
    until(lambda: accepted() == ("True", "Accepted"), "Accepted")


def test_the_api_rejects_a_gateway_and_names_every_invalid_field(mesh: RunningMesh, namespace: str) -> None:
    wrong = edge_gateway({**HTTP, "hostname": "1.2.3.4"}, HTTP)
    refused = mesh.try_kubectl("apply", "-n", namespace, "-f", "-", stdin=wrong)
    assert refused.returncode == 1
    assert "spec.listeners[0].hostname" in refused.stderr
    assert "spec.listeners[1].name" in refused.stderr
    unknown = route_to_web("typo", {"name": "edge"}).replace("parentRefs", "parentRef")
    refused = mesh.try_kubectl("apply", "-n", namespace, "-f", "-", stdin=unknown)
    assert 'unknown field "spec.parentRef"' in refused.stderr


def test_kubectl_explain_describes_the_fields_of_routes(mesh: RunningMesh) -> None:
    assert "Copies of requests to another backend" in mesh.kubectl("explain", "httproute.spec.rules.filters")
    assert "expression" in mesh.kubectl("explain", "httproutegroup.spec.matches.pathRegex")


def test_the_gateway_of_the_example_serves_requests(mesh: RunningMesh, namespace: str) -> None:
    """The example of docs/tasks/gateway-api.md."""
    mesh.apply(external("foobar", mesh.backend("v1")), EXAMPLE.read_text(), namespace=namespace)

    def address() -> Any:
        return mesh.get("gateway/edge", namespace)["status"]["addresses"][0]["value"]

    entrance = Address(until(address, "the gateway's address"), 8000)
    mesh.settle()

    def answer(target: str, host: str) -> str:
        return mesh.ask(Request(entrance, target, host)).answered_by

    assert answer("/", "foobar.example.com") == "v1"
    assert answer("/old/page", "foobar.example.com") == "301"
    assert answer("/", "other.example.com") == "404"
