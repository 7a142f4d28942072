"""`headgate explain --from`: authorization, mutual TLS, and remedies (R67 to R76, D15, D21)."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import ServedMesh
from tests.make.objects import (
    account_ref,
    authorization_policy,
    backed_service,
    caller_rule,
    gateway,
    http_rule,
    listener,
    meshed_pod,
    obj,
    pod,
    route,
    rule,
    service,
    smi_tcp_route,
    split,
    tcp_rule,
    tls_config,
    traffic_target,
)

from headgate.resources.audit_mode import AUDIT, MODE
from headgate.resources.gateway_api.proxies import PROXY_OF
from headgate.settings import Settings

Run = Callable[..., Any]
ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "bookstore")
SA_2 = "spiffe://cluster.local/ns/default/sa/sa-2"
GATEWAY = "spiffe://cluster.local/ns/headgate-system/sa/gateway"
SERVER = {"account": "sa-1"}
LOOK = obj("HTTPRouteGroup", "g", spec={"matches": [{"name": "look", "pathRegex": "/version$", "methods": ["GET"]}]})
TCP = smi_tcp_route("t", 9000)
RULES = [http_rule("g"), tcp_rule("t")]
CLIENTS = [
    meshed_pod("two", "10.1.0.2", account="sa-2"),
    meshed_pod("three", "10.1.0.3", account="sa-3"),
    meshed_pod("bare", "10.1.0.4", account="sa-2", mode=""),
]
CLOSED = [LOOK, TCP, traffic_target("access", "sa-1", ["sa-2"], RULES)]


def world(*more: Any, **server: Any) -> list[Any]:
    """Return objects: a pod that runs as sa-1, two Services with different protocols for the pod's port, and callers."""
    made = {**SERVER, **server}
    return [
        *backed_service("web", ("server", "10.1.0.1"), metadata={"creationTimestamp": "2026-01-01T00:00:00Z"}),
        *backed_service(
            "raw",
            ("server", "10.1.0.1"),
            number=9000,
            target=8080,
            app="tcp",
            metadata={"creationTimestamp": "2026-01-02T00:00:00Z"},
        ),
        meshed_pod("server", "10.1.0.1", **made),
        *CLIENTS,
        *more,
    ]


@pytest.fixture
def explain(run: Run, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that explains `GET http://web:8080/version` from a caller, as JSON with the exit code."""

    def asked(objects: list[Any], caller: str, *more: str, url: str = "http://web:8080/version") -> Any:
        (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
        arguments = ("--from", caller) if caller else ()
        ended = run("explain", "GET", url, *arguments, *more, "-f", "all.yaml", "-o", "json")
        return json.loads(ended.out)["status"] | {"code": ended.code}

    return asked


def arrival(found: Any) -> Any:
    ((arrived,),) = [backend["arrivals"] for backend in found["backends"]]
    return arrived


def transport_of(arrived: Any) -> tuple[str, str]:
    return arrived["transport"], arrived["transportMessage"]


def test_explain_names_the_target_and_rule_that_allow_the_request(explain: Callable[..., Any]) -> None:
    """R68, R70."""
    found = explain(world(*CLOSED), "pod/two")
    key = {"group": "", "kind": "Pod", "namespace": "default", "name": "two"}
    assert (found["code"], found["caller"]) == (0, {"object": key, "identity": SA_2, "message": ""})
    assert arrival(found) == {
        "workload": "default/server",
        "address": "10.1.0.1:8080",
        "transport": "MutualTLS",
        "transportMessage": "with spiffe://cluster.local/ns/default/sa/sa-1",
        "allowed": True,
        "object": {
            "group": "access.smi-spec.io",
            "kind": "TrafficTarget",
            "namespace": "default",
            "name": "access",
        },
        "rule": "g/look",
        "message": "TrafficTarget default/access allows it",
        "remedyMessage": "",
        "remedyObjects": [],
        "wideRemedyObjects": [],
    }


def test_a_denial_names_the_traffic_target_to_change(explain: Callable[..., Any]) -> None:
    """D21. The exit code of a denial is 1, as for every error of a proxy."""
    found = explain(world(*CLOSED), "sa/sa-3")
    arrived = arrival(found)
    assert (found["code"], arrived["allowed"]) == (1, False)
    assert arrived["remedyMessage"] == (
        "create a TrafficTarget in namespace default with destination ServiceAccount sa-1, source ServiceAccount default/sa-3 and "
        "match look of HTTPRouteGroup g; or add the ServiceAccount to spec.sources of TrafficTarget default/access, which also "
        "allows connections to port 9000"
    )


def test_a_denial_names_only_the_traffic_target_that_allows_nothing_else(explain: Callable[..., Any]) -> None:
    narrow = traffic_target("narrow", "sa-1", ["sa-2"], [http_rule("g")])
    message = arrival(explain(world(*CLOSED, narrow), "sa/sa-3"))["remedyMessage"]
    source = "ServiceAccount default/sa-3"
    assert message == f"add {source} to spec.sources of TrafficTarget default/narrow, or create a TrafficTarget for it"


def test_the_objects_of_a_remedy_allow_this_method_and_path_only(explain: Callable[..., Any]) -> None:
    """No match of a TrafficTarget fits: the remedy has a group of its own, with the path in full."""
    objects = world(*CLOSED)
    denied = arrival(explain(objects, "sa/sa-3", url="http://web:8080/items/a.b?x=1"))
    group, target = denied["remedyObjects"]
    assert group["metadata"]["name"] == "get-items-a-b"
    assert group["spec"]["matches"] == [{"name": "get", "methods": ["GET"], "pathRegex": r"/items/a\.b$"}]
    assert "an HTTPRouteGroup for GET /items/a.b" in denied["remedyMessage"]
    after = [*objects, group, target]
    allowed = {
        url: arrival(explain(after, "sa/sa-3", url=f"http://web:8080{url}"))["allowed"]
        for url in ("/items/a.b", "/items/a.bc", "/items/axb", "/")
    }
    assert allowed == {"/items/a.b": True, "/items/a.bc": False, "/items/axb": False, "/": False}


def test_the_objects_of_a_remedy_refer_to_a_match_that_fits(explain: Callable[..., Any]) -> None:
    wide = obj("HTTPRouteGroup", "a", spec={"matches": [{"name": "any", "methods": ["GET"], "pathRegex": "/.*"}]})
    objects = world(*CLOSED, wide, traffic_target("a", "sa-1", ["sa-2"], [http_rule("a")]))
    denied = arrival(explain(objects, "sa/sa-3"))
    (target,) = denied["remedyObjects"]
    assert target["spec"]["rules"] == [{"kind": "HTTPRouteGroup", "name": "g", "matches": ["look"]}]
    assert denied["remedyMessage"].endswith(
        "spec.sources of TrafficTarget default/access, which also allows connections to port 9000"
    )
    assert (
        "TrafficTarget default/a, which also allows GET paths that begin with a match of /.*" in denied["remedyMessage"]
    )
    assert arrival(explain([*objects, target], "sa/sa-3"))["allowed"]


@pytest.mark.parametrize(
    "pattern", ["/version", "/v", "/[a-z].*", "/[^-]", "/(version|private)$", "/version$|/private"]
)
def test_the_objects_of_a_remedy_use_no_match_for_more_paths(explain: Callable[..., Any], pattern: str) -> None:
    """A `pathRegex` is a beginning: `/v` allows nearly as much as no path."""
    group = obj("HTTPRouteGroup", "g", spec={"matches": [{"name": "m", "pathRegex": pattern, "methods": ["GET"]}]})
    objects = world(group, traffic_target("access", "sa-1", ["sa-2"], [http_rule("g")]))
    denied = arrival(explain(objects, "sa/sa-3"))
    own, target = denied["remedyObjects"]
    assert own["spec"]["matches"] == [{"name": "get", "methods": ["GET"], "pathRegex": "/version$"}]
    assert "an HTTPRouteGroup for GET /version; or add the ServiceAccount to spec.sources" in denied["remedyMessage"]
    after = [*objects, own, target]
    assert arrival(explain(after, "sa/sa-3"))["allowed"]
    for url in ("http://web:8080/versions", "http://web:8080/private"):
        assert not arrival(explain(after, "sa/sa-3", url=url))["allowed"]


def test_a_remedy_says_which_paths_a_wider_match_allows(explain: Callable[..., Any]) -> None:
    """It has the method and begins with the path of the request, but allows others: `/versions`."""
    matches = [{"name": "m", "pathRegex": "/version", "methods": ["GET"]}]
    group = obj("HTTPRouteGroup", "wide", spec={"matches": matches})
    objects = world(group, traffic_target("access", "sa-1", ["sa-2"], [http_rule("wide")]))
    message = arrival(explain(objects, "sa/sa-3"))["remedyMessage"]
    assert message.endswith("TrafficTarget default/access, which also allows GET paths that begin with /version")


def test_a_method_that_no_rule_can_name_gets_no_objects(run: Run, tmp_path: Path) -> None:
    """`*` is a token, so a client can send it as a method; in a rule it means all methods."""
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(world(*CLOSED)))
    ended = run("explain", "*", "http://web:8080/other", "--from", "sa/sa-3", "-f", "all.yaml", "-o", "json")
    denied = arrival(json.loads(ended.out)["status"])
    assert (denied["allowed"], denied["remedyObjects"]) == (False, [])
    assert denied["remedyMessage"].endswith("a rule that matches the request")


def shared_account(*policies: Any, **more: Any) -> list[Any]:
    """Return the server, and another pod of its ServiceAccount with a Service of its own."""
    other = [*backed_service("other", ("open", "10.1.0.9")), meshed_pod("open", "10.1.0.9", account="sa-1")]
    return world(*other, *policies, labels={"app": "server"}, **more)


@pytest.mark.parametrize("url", ["http://web:8080/version", "http://raw:9000/"])
def test_no_objects_close_the_open_pods_of_a_service_account(explain: Callable[..., Any], url: str) -> None:
    """The policy closes one pod of the account; a TrafficTarget would close all of them."""
    objects = shared_account(authorization_policy("p", {"app": "server"}, caller_rule("sa-2", ports=[7000])))
    denied = arrival(explain(objects, "sa/sa-3", url=url))
    assert (denied["allowed"], denied["remedyObjects"], denied["wideRemedyObjects"]) == (False, [], [])
    calls = "requests" if "web" in url else "connections"
    assert denied["remedyMessage"] == (
        "add a rule for ServiceAccount default/sa-3 and port 8080 to XAuthorizationPolicy default/p, which then allows "
        f"all its {calls} to the port; a TrafficTarget would also close pod default/open"
    )
    assert arrival(explain(objects, "sa/sa-3", url="http://other:8080/"))["allowed"]


@pytest.mark.parametrize("closing", ["option", "target", "audit"])
def test_objects_are_offered_where_all_pods_of_the_account_are_closed(
    explain: Callable[..., Any], closing: str
) -> None:
    policy = authorization_policy("p", {"app": "server"}, caller_rule("sa-2"))
    mode = {MODE: AUDIT} if closing == "audit" else {}
    target = traffic_target("t", "sa-1", ["sa-2"], [http_rule("g")], annotations=mode)
    objects = shared_account(policy, LOOK, *([] if closing == "option" else [target]))
    denied = arrival(explain(objects, "sa/sa-3", *(("--access", "deny") if closing == "option" else ())))
    assert (denied["allowed"], bool(denied["remedyObjects"])) == (False, closing != "audit")
    assert ("create a TrafficTarget" in denied["remedyMessage"]) == (closing != "audit")


def test_a_remedy_names_the_further_pods_and_ports_of_a_policy(explain: Callable[..., Any]) -> None:
    """The policy selects the other pod too, and the rule has two ports."""
    policy = authorization_policy("p", {}, caller_rule("sa-2", ports=[8080, 9090]))
    more = backed_service("admin", ("server", "10.1.0.1"), number=9090)
    denied = arrival(explain(shared_account(policy, *more), "sa/sa-3"))
    assert denied["remedyObjects"] == []
    assert denied["remedyMessage"].startswith(
        "add ServiceAccount default/sa-3 to spec.rules[0].sources of XAuthorizationPolicy default/p, which also allows "
        "requests to port 9090, calls to pods default/open, default/three, default/two, all requests"
    )
    closed = shared_account(authorization_policy("p", {}))
    message = arrival(explain(closed, "sa/sa-3"))["remedyMessage"]
    assert message == (
        "add a rule for ServiceAccount default/sa-3 and port 8080 to XAuthorizationPolicy default/p, which then allows "
        "all its requests to the port and calls to pods default/open, default/three, default/two"
    )


@pytest.mark.parametrize(("port", "of"), [(0, "server"), (0, "open"), (8080, "server")])
def test_a_remedy_names_the_further_ports_of_a_target_without_a_port(
    explain: Callable[..., Any], port: int, of: str
) -> None:
    """The ports can be those of another pod of the ServiceAccount."""
    destination = account_ref("sa-1") | ({"port": port} if port else {})
    more = backed_service("admin", (of, "10.1.0.1" if of == "server" else "10.1.0.9"), number=9090)
    objects = shared_account(*more, LOOK, traffic_target("t", destination, ["sa-2"], [http_rule("g")]))
    message = arrival(explain(objects, "sa/sa-3"))["remedyMessage"]
    place = "spec.sources of TrafficTarget default/t"
    if port:
        assert message == f"add ServiceAccount default/sa-3 to {place}, or create a TrafficTarget for it"
    else:
        assert message.endswith(f"add the ServiceAccount to {place}, which also allows requests to port 9090")


@pytest.mark.parametrize("url", ["http://web:8080/a//b", "http://web:8080/" + "a" * 1100])
def test_there_are_no_objects_for_a_path_that_no_rule_can_name(explain: Callable[..., Any], url: str) -> None:
    denied = arrival(explain(world(*CLOSED), "sa/sa-3", url=url))
    assert (denied["allowed"], denied["remedyObjects"], len(denied["wideRemedyObjects"])) == (False, [], 2)
    assert denied["remedyMessage"].endswith("a rule that matches the request")


@pytest.mark.parametrize("url", ["http://web:8080/version", "http://raw:9000/"])
def test_the_objects_of_a_remedy_allow_the_caller_and_close_nothing(explain: Callable[..., Any], url: str) -> None:
    objects = world(*CLOSED)
    field = "wideRemedyObjects" if "web" in url else "remedyObjects"
    remedy = arrival(explain(objects, "sa/sa-3", url=url))[field]
    kind = "HTTPRouteGroup" if "web" in url else "TCPRoute"
    assert [made["kind"] for made in remedy] == [kind, "TrafficTarget"]
    assert remedy[1]["metadata"]["name"].endswith("-8080-from-default.sa-3")
    after = [*objects, *remedy]
    assert arrival(explain(after, "sa/sa-3", url=url))["allowed"]
    assert arrival(explain(after, "sa/sa-2", url=url))["allowed"]
    # A second caller needs the TrafficTarget only: the route exists.
    (target,) = arrival(explain(after, "sa/sa-4", url=url))[field]
    assert target["spec"]["sources"] == [{"kind": "ServiceAccount", "namespace": "default", "name": "sa-4"}]


def test_the_objects_of_a_remedy_replace_no_rule_that_a_user_narrowed(explain: Callable[..., Any]) -> None:
    matches = [{"name": "reads", "methods": ["GET"], "pathRegex": "/public/.*"}]
    narrowed = obj("HTTPRouteGroup", "all-requests", spec={"matches": matches})
    used = traffic_target("sa-1-http-8080-from-default.sa-3", "sa-1", ["sa-2"], [http_rule("all-requests")])
    objects = world(*CLOSED, narrowed, used)
    route, target = arrival(explain(objects, "sa/sa-3"))["wideRemedyObjects"]
    assert route["metadata"]["name"] == "all-requests-2"
    assert target["metadata"]["name"] == "sa-1-http-8080-from-default.sa-3-2"
    assert arrival(explain([*objects, route, target], "sa/sa-3"))["allowed"]
    # The next caller uses the new group.
    (second,) = arrival(explain([*objects, route, target], "sa/sa-4"))["wideRemedyObjects"]
    assert arrival(explain([*objects, route, target, second], "sa/sa-4"))["allowed"]


def test_the_objects_of_a_remedy_do_not_widen_a_rule_that_names_the_caller(explain: Callable[..., Any]) -> None:
    """The rule allows sa-2 a part of its requests: objects that allow all of them would undo that limit."""
    denied = arrival(explain(world(*CLOSED), "sa/sa-2", url="http://web:8080/other"))
    assert (denied["allowed"], denied["wideRemedyObjects"]) == (False, [])
    assert denied["remedyMessage"].endswith("an HTTPRouteGroup for GET /other")
    after = [*world(*CLOSED), *denied["remedyObjects"]]
    assert arrival(explain(after, "sa/sa-2", url="http://web:8080/other"))["allowed"]


@pytest.mark.parametrize(("port", "is_offered"), [(8080, False), (9999, True)])
def test_a_rule_for_another_port_leaves_the_objects_of_a_remedy(
    explain: Callable[..., Any], port: int, is_offered: bool
) -> None:
    post = obj("HTTPRouteGroup", "p", spec={"matches": [{"name": "post", "methods": ["POST"]}]})
    destination = account_ref("sa-1") | {"port": port}
    narrow = traffic_target("narrow", destination, ["sa-3"], [http_rule("p")])
    denied = arrival(explain(world(*CLOSED, post, narrow), "sa/sa-3"))
    assert (denied["allowed"], bool(denied["wideRemedyObjects"])) == (False, is_offered)


def test_no_objects_help_a_caller_without_identity(explain: Callable[..., Any]) -> None:
    assert arrival(explain(world(*CLOSED), "pod/bare"))["remedyObjects"] == []


def test_a_request_without_a_matching_rule_shows_the_nearest_rule(explain: Callable[..., Any]) -> None:
    found = explain(world(*CLOSED), "pod/two", url="http://web:8080/other")
    arrived = arrival(found)
    assert arrived["message"] == "TrafficTarget default/access, g/look: path is '/other', wanted regex /version$"
    assert arrived["remedyMessage"].startswith(
        "create a TrafficTarget in namespace default with destination ServiceAccount sa-1"
    )


def test_the_protocol_of_the_called_service_selects_the_rules(explain: Callable[..., Any]) -> None:
    """R67, R68. Both Services lead to the same port of the same pod."""
    found = explain(world(*CLOSED), "pod/two", url="http://raw:9000/")
    assert (found["protocol"], arrival(found)["rule"]) == ("tcp", "t")


def test_the_default_caller_is_the_gateway(explain: Callable[..., Any]) -> None:
    found = explain(world(*CLOSED), "")
    assert (found["caller"], found["code"]) == ({"object": None, "identity": GATEWAY, "message": ""}, 1)
    assert "ServiceAccount headgate-system/gateway" in arrival(found)["remedyMessage"]


def test_a_caller_without_a_sidecar_calls_in_plaintext(explain: Callable[..., Any]) -> None:
    """R74, R76."""
    opened = explain(world(), "pod/bare")
    assert (opened["caller"]["identity"], opened["code"]) == ("", 0)
    assert transport_of(arrival(opened)) == ("Plaintext", "the caller has no sidecar")
    for more in (CLOSED, [tls_config("strict", {"app": "x"})]):
        found = explain(world(*more, labels={"app": "x"}), "pod/bare")
        assert found["code"] == 1
        assert 'headgate.dev/inject: "true"' in arrival(found)["remedyMessage"]
    assert arrival(found)["message"] == "it accepts mutual TLS only, and this is plaintext"


def test_routes_apply_to_a_caller_without_a_sidecar_only_at_the_gateway_of_a_service(
    explain: Callable[..., Any],
) -> None:
    """R32. Otherwise Kubernetes leads it to the endpoints of the Service itself."""
    shares = split("web", {"v2": 1}, name="s")
    objects = world(*backed_service("v2", ("server", "10.1.0.1")), shares, *CLOSED)
    found = explain(objects, "pod/bare")
    assert [item["service"] for item in found["backends"]] == ["default/web"]
    assert "no route applies to its requests" in found["caller"]["message"]
    objects[0]["metadata"]["annotations"] = {"headgate.dev/gateway": "envoy"}
    found = explain(objects, "pod/bare")
    assert ([item["service"] for item in found["backends"]], found["caller"]["identity"]) == (["default/v2"], GATEWAY)
    assert "the envoy gateway of the Service default/web forwards its requests" in found["caller"]["message"]


@pytest.mark.parametrize(
    ("address", "finalizers"), [("127.77.128.9", []), ("10.77.128.9", ["headgate.dev/stop-process"])]
)
def test_the_gateway_forwards_calls_of_a_local_pod_without_a_sidecar(
    explain: Callable[..., Any], address: str, finalizers: list[str]
) -> None:
    """The second pod is in a network of its own."""
    local = meshed_pod("local", address, account="sa-2", mode="")
    local["metadata"]["finalizers"] = finalizers
    found = explain(world(local), "pod/local")
    assert found["caller"]["identity"] == GATEWAY
    assert "the gateway forwards its requests" in found["caller"]["message"]


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ({"mode": ""}, "it has no sidecar, so every request is allowed"),
        (
            {"annotations": {"headgate.dev/excluded-inbound-ports": "8080"}},
            "its sidecar does not intercept port 8080 (headgate.dev/excluded-inbound-ports)",
        ),
        (
            {"mode": "explicit", "annotations": {"headgate.dev/application-ports": "9090=20417"}},
            "its sidecar does not serve port 8080, so the request reaches the process directly",
        ),
    ],
)
def test_ports_that_the_sidecar_does_not_intercept_allow_every_caller(
    explain: Callable[..., Any], server: dict[str, Any], reason: str
) -> None:
    found = explain(world(*CLOSED, **server), "pod/three")
    arrived = arrival(found)
    assert (arrived["allowed"], arrived["transport"], arrived["message"]) == (True, "Plaintext", reason)


def test_explain_shows_the_findings_on_the_pods(explain: Callable[..., Any]) -> None:
    """R77."""
    found = explain(world(*CLOSED, mode=""), "pod/three")
    assert "NotEnforced" in {item["reason"] for item in found["remarks"]}


def test_access_and_mtls_options_apply_to_files(explain: Callable[..., Any]) -> None:
    """D21."""
    assert arrival(explain(world(), "pod/two"))["allowed"]
    assert not arrival(explain(world(), "pod/two", "--access", "deny"))["allowed"]
    off = arrival(explain(world(), "pod/two", "--mtls", "off"))
    assert transport_of(off) == ("Plaintext", "mutual TLS is off for this workload")
    assert not arrival(explain(world(), "pod/bare", "--mtls", "strict"))["allowed"]


def test_short_names_resolve_in_the_callers_namespace(explain: Callable[..., Any]) -> None:
    """R2. The caller's sidecar resolves them."""
    shop = [*backed_service("web", ("s", "10.2.0.1"), namespace="shop"), meshed_pod("s", "10.2.0.1", namespace="shop")]
    assert explain(world(*shop), "pod/s", "-n", "shop")["service"] == "shop/web"
    assert explain(world(*shop), "pod/two")["service"] == "default/web"


def test_access_rules_match_the_rewritten_path(explain: Callable[..., Any]) -> None:
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/version"}}}
    spec = {
        "parentRefs": [{"group": "", "kind": "Service", "name": "web"}],
        "rules": [{"filters": [rewrite], "backendRefs": [{"name": "web", "port": 8080}]}],
    }
    found = explain(world(*CLOSED, obj("HTTPRoute", "r", spec=spec)), "pod/two", url="http://web:8080/other")
    assert arrival(found)["allowed"]


def test_explain_prints_the_bookstore_example_of_the_docs(run: Run) -> None:
    """A Deployment in the files counts as one pod with the Deployment's name."""
    ended = run("explain", "POST", "http://bookstore:8080/books", "--from", "pod/thief", "-f", EXAMPLE)
    assert ended.code == 1
    assert "Caller     Pod default/thief, spiffe://cluster.local/ns/default/sa/thief\n" in ended.out
    assert (
        "At the pods\n"
        "  denied     default/bookstore-v1:8080, by mutual TLS\n"
        "             no TrafficTarget or XAuthorizationPolicy allows this caller\n"
        "             to allow it: create a TrafficTarget in namespace default with destination ServiceAccount bookstore, source "
        "ServiceAccount default/thief and match buy of HTTPRouteGroup bookstore; or add the ServiceAccount to spec.sources of "
        "TrafficTarget default/buyer-to-bookstore, which also allows GET /books$\n"
    ) in ended.out
    ended = run("explain", "GET", "http://bookstore:8080/books", "--from", "serviceaccount/buyer", "-f", EXAMPLE)
    assert ended.code == 0
    assert "             TrafficTarget default/buyer-to-bookstore, rule bookstore/look\n" in ended.out


def test_pods_of_a_service_are_listed_separately_when_their_results_differ(run: Run, tmp_path: Path) -> None:
    pods = [meshed_pod("one", "10.1.0.1", account="open"), meshed_pod("two", "10.1.0.2", account="sa-1")]
    objects = [*backed_service("web", ("one", "10.1.0.1"), ("two", "10.1.0.2")), *pods, *CLOSED]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    ended = run("explain", "GET", "http://web:8080/version", "-f", "all.yaml")
    assert ended.code == 0  # some pods allow the request
    assert "  allowed    pod default/one, by mutual TLS\n" in ended.out
    assert "  denied     pod default/two, by mutual TLS\n" in ended.out


def test_a_deployment_calls_with_the_identity_of_its_pods(run: Run) -> None:
    ended = run("explain", "http://bookstore:8080/books", "--from", "deployment/thief", "-f", EXAMPLE, "-o", "json")
    found = json.loads(ended.out)["status"] | {"code": ended.code}
    about = found["caller"]["object"]
    assert (about["kind"], about["name"]) == ("Deployment", "thief")
    assert found["caller"]["identity"] == "spiffe://cluster.local/ns/default/sa/thief"
    assert found["caller"]["message"] == "as its pod thief"
    assert found["code"] == 1
    missing = run("explain", "http://bookstore:8080/", "--from", "deploy/missing", "-f", EXAMPLE)
    assert (missing.code, "Deployment default/missing not found, or none of its pods runs" in missing.err) == (1, True)


def test_a_service_account_without_pods_gets_a_note(explain: Callable[..., Any]) -> None:
    assert explain(world(), "serviceaccount/typo")["caller"]["message"] == "no pod runs as this ServiceAccount now"


@pytest.mark.parametrize(("caller", "status"), [("pod/two", 0), ("sa/sa-2", 0), ("pod/bare", 0), ("", 404)])
def test_with_access_deny_transparent_sidecars_pass_connections_to_unknown_hosts(
    explain: Callable[..., Any], caller: str, status: int
) -> None:
    """D21. An HTTP proxy answers 403, as it has only the Services that its pod may call."""
    found = explain(world(*CLOSED), caller, "--access", "deny", url="http://unknown:8080/")
    assert [item["statusCode"] for item in found["backends"]] == [status]
    assert found["code"] == (1 if status else 0)
    found = explain(world(*CLOSED), caller, url="http://unknown:8080/")
    assert [item["statusCode"] for item in found["backends"]] == [status]


@pytest.mark.parametrize("settings", [Settings(gateway_pods=True)])
async def test_access_on_a_cluster_without_a_gateway_is_explained_for_a_named_caller_only(served: ServedMesh) -> None:
    """The account of a gateway that does not exist must not get access."""
    for stored in world(*CLOSED):
        await served.store.create(stored)
    command = "explain", "http://web:8080/other"
    unnamed = await served.run(*command)
    assert unnamed.code == 0, unnamed.err
    assert (
        "Caller     this cluster has no gateway, so access is not explained; name the caller (--from)\n" in unnamed.out
    )
    assert "\ndefault/web:8080 " in unnamed.out
    assert "headgate-system" not in unnamed.out
    assert "At the pods" not in unnamed.out
    named = await served.run(*command, "--from", "serviceaccount/sa-3")
    assert "At the pods\n  allowed    default/web:8080" in named.out
    proxy: Any = {"namespace": "headgate-system", "account": "gateway", "annotations": {PROXY_OF: "default/edge"}}
    await served.store.create(obj("Namespace", "headgate-system", namespace=""))
    await served.store.create(pod("edge-1", "10.1.0.9", **proxy))
    assert "Caller     the gateway, spiffe://" in (await served.run(*command)).out


@pytest.mark.parametrize(
    ("callers", "code", "allowed"), [((), 1, False), ((account_ref("gateway", "headgate-system"),), 0, True)]
)
def test_a_rule_passes_no_request_while_the_pods_of_its_authorization_server_deny_the_call(
    explain: Callable[..., Any], callers: Sequence[Any], code: int, allowed: bool
) -> None:
    """The proxy calls the server with its own identity; a denied call makes the request 403, whatever the backends allow."""
    server = {"protocol": "HTTP", "backendRef": {"name": "web", "port": 8080}, "http": {"path": "check"}}
    guarded = rule({"open": 1}, filters=[{"type": "ExternalAuth", "externalAuth": server}])
    match = {"name": "check", "methods": ["GET"], "pathRegex": "/check/version$"}
    objects = world(
        obj("HTTPRouteGroup", "asked", spec={"matches": [match]}),
        traffic_target("access", "sa-1", callers, [http_rule("asked")]),
        *backed_service("open", ("open", "10.1.0.7")),
        gateway("edge", listener(80)),
        route("guarded", guarded, parents=[{"name": "edge"}]),
    )
    explained = explain(objects, "", "--via", "gateway/edge", url="http://web.example/version")
    asked = explained["authorizationServer"]
    assert (asked["service"], asked["port"], [each["allowed"] for each in asked["arrivals"]]) == (
        "default/web",
        8080,
        [allowed],
    )
    assert (explained["code"], arrival(explained)["allowed"]) == (code, True)


def test_the_text_names_an_authorization_server_that_denies_the_call(run: Run, tmp_path: Path) -> None:
    server = {"protocol": "GRPC", "backendRef": {"name": "web", "port": 8080}, "grpc": {}}
    guarded = rule({"open": 1}, filters=[{"type": "ExternalAuth", "externalAuth": server}])
    objects = world(
        traffic_target("access", "sa-1", ["sa-2"], RULES),
        LOOK,
        *backed_service("open", ("open", "10.1.0.7")),
        gateway("edge", listener(80)),
        route("guarded", guarded, parents=[{"name": "edge"}]),
    )
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    ended = run("explain", "http://web.example/", "--via", "gateway/edge", "-f", "all.yaml")
    assert "denied     calls of the authorization server default/web:8080, by mutual TLS" in ended.out


def test_a_rule_passes_no_request_while_its_authorization_server_has_no_ready_endpoint(
    run: Run, tmp_path: Path
) -> None:
    server = {"protocol": "GRPC", "backendRef": {"name": "judge", "port": 8080}, "grpc": {}}
    guarded = rule({"open": 1}, filters=[{"type": "ExternalAuth", "externalAuth": server}])
    objects = [
        *backed_service("open", ("open", "10.1.0.7")),
        service("judge", 8080),
        gateway("edge", listener(80)),
        route("guarded", guarded, parents=[{"name": "edge"}]),
    ]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    ended = run("explain", "http://web.example/", "--via", "gateway/edge", "-f", "all.yaml")
    assert ended.code == 1
    assert (
        "denied     by the proxy, because the authorization server default/judge:8080 has no ready endpoint"
        in ended.out
    )
