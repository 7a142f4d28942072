"""Routes and mirrors, from manifests to counted requests (specification 002: R44 to R60; D3, D11, D13, D14)."""

import asyncio
import base64
import json
import re
import ssl
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests.draws import fits
from tests.e2e.gateway_api.objects import (
    edge_gateway,
    edge_route,
    gateway_address,
    gateway_api_object,
    gateway_for_hosts,
    rule_to,
    web_listener,
)
from tests.e2e.manifests import endpoints, external, service_manifest, split_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.make.objects import GATEWAY_API
from tests.protocols import certificate, connect_often, greeting_server
from tests.waiting import until
from tests.wire import Backend, Request

from headgate.envoy import names
from headgate.model.routing import PortRef

HOST = "mirror.example"
MANY = 2000


def mirror(name: str, **more: Any) -> Mapping[str, Any]:
    reference = {"name": name, "port": 8080} | more.pop("ref", {})
    return {"type": "RequestMirror", "requestMirror": {"backendRef": reference, **more}}


def counter(mesh: RunningMesh, name: str) -> int:
    """Return a counter of the gateway's Envoy."""
    return int(json.loads(mesh.envoy(f"/stats?format=json&filter=^{name}$"))["stats"][0]["value"])


def gets_copies(backend: Backend, count: int) -> bool:
    """Wait until a backend has received exactly `count` copies: they arrive after the client's answer."""
    return bool(until(lambda: backend.requests == count, f"{count} copies, not {backend.requests}"))


@pytest.mark.conformance("HTTPRouteRequestMirror")
def test_a_mirror_gets_a_copy_of_every_request_and_its_errors_reach_no_client(
    mesh: RunningMesh, namespace: str
) -> None:
    """R44, R50, R53, R58, R59: one copy of each request, to one of three endpoints."""
    v1, copies = mesh.backend("v1"), [mesh.backend(f"copy{number}") for number in range(3)]
    mesh.apply(
        external("foo-v1", v1),
        external("foo-v2", *copies),
        gateway_for_hosts(),
        edge_route(
            "route", rule_to("foo-v1", filters=[mirror("foo-v2")]), rule_to("foo-v1", path="/private"), hosts=[HOST]
        ),
        namespace=namespace,
    )
    for backend in copies:
        backend.status = "500 Internal Server Error"
    address = gateway_address(mesh, namespace)
    assert mesh.send(60, Request(address, "/", HOST)) == {"v1": 60}
    until(lambda: sum(backend.requests for backend in copies) == 60)
    assert sum((backend.hosts for backend in copies), Counter()).keys() == {HOST}
    assert mesh.send(20, Request(address, "/private", HOST)) == {"v1": 20}
    assert mesh.send(20, Request(address, "/", "other.example")) == {"404": 20}
    mesh.settle()
    assert sum(backend.requests for backend in copies) == 60


@pytest.mark.conformance("HTTPRouteRequestPercentageMirror")
@pytest.mark.parametrize(
    ("proportion", "share", "count"),
    [
        ({"percent": 42}, 0.42, 8000),  # R45, with four times its requests (tests/draws.py)
        ({"percent": 100, "fraction": {"numerator": 1, "denominator": 10}}, 0.1, MANY),  # R49
    ],
)
def test_a_mirror_gets_its_percentage_or_fraction_of_the_requests(
    mesh: RunningMesh, namespace: str, proportion: Mapping[str, Any], share: float, count: int
) -> None:
    v1, copy = mesh.backend("v1"), mesh.backend("copy")
    rule = rule_to("foo-v1", filters=[mirror("foo-v2", **proportion)])
    mesh.apply(
        external("foo-v1", v1),
        external("foo-v2", copy),
        gateway_for_hosts(),
        edge_route("route", rule),
        namespace=namespace,
    )
    assert mesh.send(count, Request(gateway_address(mesh, namespace), "/", HOST), connections=4) == {"v1": count}
    sent = f"cluster.{names.mirror(PortRef(f'{namespace}/foo-v2', 8080))}.upstream_rq_total"
    until(lambda: copy.requests == counter(mesh, sent), "the copies have arrived")
    assert fits(copy.requests, share, of=count)


@pytest.mark.conformance("HTTPRouteRequestMultipleMirrors")
def test_mirrors_of_0_and_100_percent_are_exact(mesh: RunningMesh, namespace: str) -> None:
    """R47. One rule has both mirrors."""
    v1, none, each = mesh.backend("v1"), mesh.backend("none"), mesh.backend("each")
    filters = [mirror("none", percent=0), mirror("each", percent=100)]
    mesh.apply(
        external("foo-v1", v1),
        external("none", none),
        external("each", each),
        gateway_for_hosts(),
        edge_route("route", rule_to("foo-v1", filters=filters)),
        namespace=namespace,
    )
    assert mesh.send(200, Request(gateway_address(mesh, namespace), "/", HOST)) == {"v1": 200}
    assert gets_copies(each, 200)
    assert none.requests == 0


def test_a_mirror_to_another_namespace_works_only_with_a_grant(mesh: RunningMesh, namespace: str) -> None:
    """R55, D14: without a grant only the mirror is missing, and the status reports RefNotPermitted."""
    other = f"{namespace}-other"
    mesh.create_namespace(other)
    v1, copy = mesh.backend("v1"), mesh.backend("copy")
    mesh.apply(external("copy", copy), namespace=other)
    rule = rule_to("foo-v1", filters=[mirror("copy", ref={"namespace": other})])
    mesh.apply(external("foo-v1", v1), gateway_for_hosts(), edge_route("route", rule), namespace=namespace)
    address = gateway_address(mesh, namespace)

    def resolved() -> str:
        parents = mesh.get("httproute/route", namespace)["status"]["parents"]
        (found,) = (item for item in parents[0]["conditions"] if item["type"] == "ResolvedRefs")
        return str(found["reason"])

    def copies(wanted: int) -> None:
        copy.reset_count()
        assert mesh.send(20, Request(address, "/", HOST)) == {"v1": 20}
        assert gets_copies(copy, wanted)

    copies(0)
    until(lambda: resolved() == "RefNotPermitted")
    grant = {
        "from": [{"group": GATEWAY_API, "kind": "HTTPRoute", "namespace": namespace}],
        "to": [{"group": "", "kind": "Service"}],
    }
    mesh.apply(gateway_api_object("ReferenceGrant", "copies", grant), namespace=other)
    copies(20)
    until(lambda: resolved() == "ResolvedRefs")
    mesh.delete("referencegrant/copies", other)
    mesh.settle()
    copies(0)


def test_a_rule_answers_errors_for_failing_shares_and_applies_the_split_of_a_root(
    mesh: RunningMesh, namespace: str
) -> None:
    """D11, D13, R60: a missing backend gets 500, one without endpoints 503; a root's share follows its split."""
    v1, v2, copy = mesh.backend("v1"), mesh.backend("v2"), mesh.backend("copy")
    mesh.apply(
        external("web"),
        external("web-v1", v1),
        external("web-v2", v2),
        external("empty"),
        external("copy", copy),
        split_manifest("web", "web", {"web-v1": 3, "web-v2": 1}),
        gateway_for_hosts(),
        edge_route(
            "route",
            rule_to("web:4", "gone:2", "empty:2", filters=[mirror("copy")]),
            rule_to("web-v1:0", path="/zero"),
            rule_to("web", path="/only-the-split"),
        ),
        namespace=namespace,
    )
    address = gateway_address(mesh, namespace)
    counts = mesh.send(MANY, Request(address, "/", HOST), connections=4)
    shares = {"v1": 3 / 8, "v2": 1 / 8, "500": 1 / 4, "503": 1 / 4}
    assert counts.keys() == shares.keys()
    assert all(fits(counts[backend], share, of=MANY) for backend, share in shares.items()), counts
    assert mesh.send(20, Request(address, "/zero", HOST)) == {"500": 20}
    assert mesh.send(40, Request(address, "/only-the-split", HOST)) == {"v1": 30, "v2": 10}


def groups(name: str, **matches: Mapping[str, Any]) -> str:
    spec = {"matches": [{"name": key, **match} for key, match in matches.items()]}
    return json.dumps(
        {
            "apiVersion": "specs.smi-spec.io/v1alpha4",
            "kind": "HTTPRouteGroup",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def matched_split(root: str, group: str, weights: Mapping[str, int]) -> str:
    obj = json.loads(split_manifest(f"{root}-{group}", root, weights))
    obj["spec"]["matches"] = [{"kind": "HTTPRouteGroup", "name": group}]
    return json.dumps(obj)


def test_the_matches_and_weights_of_a_split_apply_to_clients_of_a_gateway(mesh: RunningMesh, namespace: str) -> None:
    """R30, D13: a backendRef or mirror to a root uses all splits of the root."""
    v1, v2, root = mesh.backend("v1"), mesh.backend("v2"), mesh.backend("root")
    mesh.apply(
        external("web", root),
        external("web-v1", v1),
        external("web-v2", v2),
        external("shop", mesh.backend("shop")),
        groups("testers", firefox={"headers": {"user-agent": ".*Firefox.*"}}, images={"pathRegex": ".*[.]png$"}),
        matched_split("web", "testers", {"web-v1": 0, "web-v2": 1}),
        split_manifest("web", "web", {"web-v1": 1, "web-v2": 0}),
        gateway_for_hosts(),
        edge_route(
            "route",
            rule_to("web"),
            rule_to("web", "shop", path="/half"),
            rule_to("shop", path="/copied", filters=[mirror("web")]),
        ),
        namespace=namespace,
    )
    address = gateway_address(mesh, namespace)
    firefox = {"user-agent": "Firefox"}

    def send(target: str, headers: Mapping[str, str] = MappingProxyType({})) -> Mapping[str, int]:
        return mesh.send(40, Request(address, target, HOST, headers))

    assert send("/") == {"v1": 40}
    assert send("/", firefox) == {"v2": 40}
    assert send("/a.png?x") == {"v2": 40}
    assert send("/a?b.png") == {"v1": 40}
    assert send("/half") == {"v1": 20, "shop": 20}
    assert send("/half", firefox) == {"v2": 20, "shop": 20}
    assert send("/half/a.png?x") == {"v2": 20, "shop": 20}
    for backend in (v1, v2, root):
        backend.reset_count()
    assert send("/copied") == {"shop": 40}
    assert gets_copies(v1, 40)
    assert send("/copied/a.png", firefox) == {"shop": 40}
    assert gets_copies(v2, 40)
    assert (v1.requests, root.requests) == (40, 0)


def test_a_mirror_to_the_root_of_a_split_follows_the_weights(mesh: RunningMesh, namespace: str) -> None:
    """D13: copies follow the weights exactly; a backend of weight 0 and the root's own endpoints get no copy."""
    names = ("web", "web-v1", "web-v2", "web-v3", "main")
    backends = {name: mesh.backend(name) for name in names}
    mesh.apply(
        *(external(name, backend) for name, backend in backends.items()),
        split_manifest("web", "web", {"web-v1": 3, "web-v2": 1, "web-v3": 0}),
        gateway_for_hosts(),
        edge_route("route", rule_to("main", filters=[mirror("web")])),
        namespace=namespace,
    )
    assert mesh.send(80, Request(gateway_address(mesh, namespace), "/", HOST)) == {"main": 80}
    assert gets_copies(backends["web-v1"], 60)
    assert gets_copies(backends["web-v2"], 20)
    assert (backends["web"].requests, backends["web-v3"].requests) == (0, 0)


def test_dropped_copies_of_a_mirror_are_counted_and_reported_while_they_occur(
    mesh: RunningMesh, namespace: str
) -> None:
    main, slow, ref = mesh.backend("main"), mesh.backend("slow"), PortRef(f"{namespace}/slow", 8080)
    slow.hangs = True
    mesh.apply(
        external("main", main),
        external("slow", slow),
        gateway_for_hosts(),
        edge_route("route", rule_to("main", filters=[mirror("slow")])),
        namespace=namespace,
    )
    address = gateway_address(mesh, namespace)

    def dropping() -> Sequence[str]:
        parents = mesh.get("httproute/route", namespace)["status"]["parents"]
        return [item["message"] for item in parents[0]["conditions"] if item["type"] == "headgate.dev/CopiesDropped"]

    until(lambda: dropping() == [])
    with mesh.load(*[Request(address, "/", HOST)] * 4) as load:
        kind, _, message = mesh.event("CopiesDropped", "route", namespace)
        assert (kind, message.partition(",")[0]) == ("Warning", f"proxies drop copies for {ref}")
        shown = re.compile(rf"spec[.]rules\[0\][.]filters: proxies drop copies for {ref}, 10{{2,}} or more so far")
        until(lambda: shown.search(dropping()[0]))
    assert load.counts == {"main": load.sent}
    dropped = counter(mesh, f"cluster.{names.mirror(ref)}.upstream_rq_pending_overflow")
    assert dropped >= 100
    metrics, expected = ("get", "--raw", "/apis/traffic.metrics.k8s.io/v1beta1/namespaces"), f"per mirror: {dropped}\n"
    until(lambda: expected in mesh.try_kubectl(*metrics).stderr)  # the last copies are in the proxy's next report
    assert mesh.event("CopiesDroppedResolved", "route", namespace)[0] == "Normal"
    until(lambda: not dropping())


def test_a_route_says_that_its_copies_fail_more_often_than_its_requests(mesh: RunningMesh, namespace: str) -> None:
    main, worse = mesh.backend("main"), mesh.backend("worse")
    worse.status = "500 Broken"
    mesh.apply(
        external("main", main),
        external("worse", worse),
        gateway_for_hosts(),
        edge_route("route", rule_to("main", filters=[mirror("worse", percent=50)])),
        namespace=namespace,
    )
    address = gateway_address(mesh, namespace)

    def verdict() -> tuple[str, str, str]:
        parents = mesh.get("httproute/route", namespace)["status"]["parents"]
        found = {item["type"]: item for item in parents[0]["conditions"]}["headgate.dev/CopiesWorse"]
        return found["status"], found["reason"], found["message"]

    def shown() -> str:
        mesh.send(20, Request(address, "/", HOST))
        status, reason, message = verdict()
        assert (status, reason) == ("True", "MoreFailures")
        return message

    message = until(shown)
    assert message.startswith(f"copies to {namespace}/worse:8080 fail 100% (99% interval ")
    assert "; requests fail 0% (99% interval 0% to " in message
    assert "CopiesWorse" in mesh.kubectl("describe", "httproute/route", "-n", namespace)


def test_the_most_specific_listener_and_match_select_the_route(mesh: RunningMesh, namespace: str) -> None:
    """Listener isolation and match precedence, independent of the order of rules."""
    names = ("any", "prefix", "exact", "header", "wild", "shop")
    exact = {"matches": [{"path": {"type": "Exact", "value": "/cart"}}], "backendRefs": rule_to("exact")["backendRefs"]}
    header = {
        "matches": [{"headers": [{"name": "X-Kind", "value": "1"}]}],
        "backendRefs": rule_to("header")["backendRefs"],
    }
    listeners = [{"name": "edge", "sectionName": f"l{number}"} for number in range(3)]
    mesh.apply(
        *(external(name, mesh.backend(name)) for name in names),
        gateway_for_hosts("", "*.example", "shop.example"),
        edge_route("any", rule_to("any"), rule_to("prefix", path="/cart"), exact, header, parent=listeners[0]),
        edge_route("wild", rule_to("wild"), parent=listeners[1]),
        edge_route("shop", rule_to("shop", path="/shop"), parent=listeners[2]),
        namespace=namespace,
    )
    address = gateway_address(mesh, namespace)

    def answer(host: str, target: str = "/", **headers: str) -> str:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return mesh.ask(Request(address, target, host, named)).answered_by

    assert answer("other.org") == "any"
    assert answer("other.org", "/cart") == "exact"
    assert answer("other.org", "/cart?full=yes", x_kind="1") == "exact"
    assert answer("other.org", "/cart/items", x_kind="1") == "prefix"
    assert answer("other.org", "/carts") == "any"
    assert answer("other.org", "/carts", x_kind="1") == "header"
    assert answer("a.example", "/cart") == "wild"
    assert answer("a.b.example:18080") == "wild"
    assert answer("shop.example", "/shop/1") == "shop"
    assert answer("shop.example", "/cart") == "404"


def test_a_route_replaces_the_split_of_its_service_until_it_is_deleted(mesh: RunningMesh, namespace: str) -> None:
    """GAMMA: requests without a matching rule get 404. After the deletion the split applies again (R27)."""
    mesh.apply(
        external("web", mesh.backend("root")),
        external("web-v1", mesh.backend("v1")),
        external("web-v2", mesh.backend("v2")),
        split_manifest("web", "web", {"web-v1": 1, "web-v2": 1}),
        edge_route(
            "route",
            rule_to("web", path="/split"),
            rule_to("web-v2", path="/v2"),
            parent={"kind": "Service", "group": "", "name": "web"},
        ),
        namespace=namespace,
    )
    address = mesh.address("web", 8080, namespace)

    def send(target: str) -> Mapping[str, int]:
        return mesh.send(10, Request(address, target, "web"))

    assert send("/split") == {"v1": 5, "v2": 5}
    assert send("/v2/a") == {"v2": 10}
    assert send("/other") == {"404": 10}
    mesh.delete("httproute/route", namespace)
    mesh.settle()
    assert send("/other") == {"v1": 5, "v2": 5}


def test_an_https_listener_serves_the_certificate_of_its_secret(
    mesh: RunningMesh, namespace: str, tmp_path: Path
) -> None:
    """Envoy's config dump never contains the private key, even if tls.crt contains it too, as here."""
    pem = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(pem))
    text = base64.b64encode(pem.read_bytes()).decode()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "db"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": text, "tls.key": text},
    }
    listener = {"name": "tls", "protocol": "HTTPS", "hostname": "db", "tls": {"certificateRefs": [{"name": "db"}]}}
    mesh.apply(
        external("web", mesh.backend("web")),
        edge_gateway(web_listener(**listener)),
        edge_route("route", rule_to("web")),
        namespace=namespace,
    )

    def resolved() -> str:
        (status,) = mesh.get("gateway/edge", namespace)["status"]["listeners"]
        return next(str(item["reason"]) for item in status["conditions"] if item["type"] == "ResolvedRefs")

    until(lambda: resolved() == "InvalidCertificateRef")
    mesh.apply(json.dumps(secret), namespace=namespace)
    address = gateway_address(mesh, namespace)
    until(lambda: resolved() == "ResolvedRefs")

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection(*address, ssl=trusting, server_hostname="db")
        writer.write(Request(address, "/", "db").encoded())
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return head

    assert b" 200 " in mesh.network.run(ask()).splitlines()[0]
    assert b"PRIVATE KEY" not in mesh.envoy("/config_dump?include_eds")


def test_a_tcp_listener_splits_connections_by_weight(mesh: RunningMesh, namespace: str) -> None:
    """The route is a TCPRoute; the servers send the first bytes of a connection."""
    v1, v2 = greeting_server(mesh.network, "v1"), greeting_server(mesh.network, "v2")
    refs = [{"name": "db-v1", "port": 3306, "weight": 9}, {"name": "db-v2", "port": 3306, "weight": 1}]
    spec = {"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": refs}]}
    mesh.apply(
        service_manifest("db-v1", {"mysql": 3306}),
        endpoints("db-v1", {"mysql": [v1]}),
        service_manifest("db-v2", {"mysql": 3306}),
        endpoints("db-v2", {"mysql": [v2]}),
        edge_gateway(web_listener("db", protocol="TCP")),
        gateway_api_object("TCPRoute", "db", spec, "v1alpha2"),
        namespace=namespace,
    )
    address = gateway_address(mesh, namespace)
    assert mesh.network.run(connect_often(address, 20)) == {"v1": 18, "v2": 2}
    assert (v1.connections, v2.connections) == (18, 2)
