"""`headgate explain`: each kind of route, and each reason why a route does not match."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import ServedMesh
from tests.make import objects

from headgate.kinds import names_of
from headgate.objects.ports import Store
from headgate.resources.decode import kind_written

Run = Callable[..., Any]
ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "ab-test")
GATEWAY = str(ROOT / "tests" / "golden" / "gw-filters" / "in.yaml")
AUTHORIZED = str(ROOT / "tests" / "golden" / "gw-external-auth" / "in.yaml")
LISTENER_SETS = str(ROOT / "tests" / "golden" / "gw-listener-sets" / "in.yaml")
CLIENT_CERTIFICATES = str(ROOT / "tests" / "golden" / "gw-client-certificates" / "in.yaml")
MESH_SERVER_NAMES = str(ROOT / "tests" / "golden" / "gw-mesh-tls" / "in.yaml")
SERVER_NAMES = str(ROOT / "tests" / "golden" / "gw-tls" / "in.yaml")
DATAGRAMS = str(ROOT / "tests" / "golden" / "gw-udp" / "in.yaml")
MIRRORS = str(ROOT / "tests" / "golden" / "gw-mirror-fractions" / "in.yaml")
RESILIENCE = str(ROOT / "tests" / "golden" / "resilience" / "in.yaml")
TCP = str(ROOT / "tests" / "golden" / "sticky-tcp" / "in.yaml")
FIREFOX = ("-H", "user-agent: Mozilla Firefox")

TEMPLATE = objects.pod_template(objects.container(), labels={"app": "client"}, account="reader")
SELECTING = {"selector": {"matchLabels": {"app": "client"}}, "template": TEMPLATE}
SPLIT = {"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": "default", "name": "website"}


def split_objects() -> list[dict[str, Any]]:
    versions = [objects.service(f"website{suffix}", 8080, selector={"app": "website"}) for suffix in ("", "-v1", "-v2")]
    match = {"pathRegex": "/x", "methods": ["POST"], "headers": {"a": "b"}}
    group = objects.http_route_group("g", {"m": match})
    split = objects.split("website", {"website-v1": 2, "website-v2": 1}, matches=["g", "gone"])
    return [*versions, group, split]


@pytest.fixture
def explain(run: Run, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs `headgate explain` on the objects of this file and returns its decoded JSON."""
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(split_objects()))
    return lambda *arguments: json.loads(run("explain", *arguments, "-f", "all.yaml", "-o", "json").out)["status"]


def test_explain_prints_the_example_of_the_docs(run: Run) -> None:
    ended = run("explain", "GET", "http://website:8080/path", *FIREFOX, "-f", EXAMPLE)
    assert ended.code == 0
    assert ended.out == (
        "GET http://website:8080/path\n"
        "\n"
        "Caller     the gateway, spiffe://cluster.local/ns/headgate-system/sa/gateway\n"
        "Service    default/website, port 8080\n"
        "Protocol   http, because the port's name is http\n"
        "Route      TrafficSplit default/website-firefox, match firefox-users/firefox\n"
        "\n"
        "BACKEND                  SHARE  PERCENT  READY ENDPOINTS\n"
        "default/website-v2:8080      1     100%                1\n"
        "\n"
        "At the pods\n"
        "  allowed    default/website-v2:8080, by mutual TLS\n"
        "             no TrafficTarget or XAuthorizationPolicy selects the workload\n"
        "\n"
        "Without a backend\n"
        "  if no backend has a ready endpoint and a weight above 0: 503 from the proxy\n"
        "  if no backend has the port: the Service itself (no route)\n"
        "\n"
        "Routes, in order of precedence\n"
        "  matched    TrafficSplit default/website-firefox, match firefox-users/firefox\n"
        "  not tried  TrafficSplit default/website-insiders, match insiders/cookie\n"
        "  not tried  the Service itself (no route)\n"
    )
    assert all(len(line) <= 80 for line in ended.out.splitlines())


def test_a_header_that_the_proxy_removes_matches_no_condition(run: Run) -> None:
    """R13. Proxies match the sanitized headers."""
    cookie = ("-H", "cookie: insider=yes", "-f", EXAMPLE, "-o", "json")
    assert (
        json.loads(run("explain", "http://website:8080/", *cookie).out)["status"]["route"]["name"] == "insiders/cookie"
    )
    status = json.loads(run("explain", "http://website:8080/", "-H", "Connection: Cookie", *cookie).out)["status"]
    assert status["route"] == {"object": None, "name": "", "matches": []}
    assert status["sanitizing"]["statusCode"] == 0
    assert status["sanitizing"]["messages"][0] == "cookie is removed: the header Connection names it"


def test_a_malformed_request_gets_400_before_it_is_routed(run: Run) -> None:
    ended = run("explain", "http://website:8080/", "-H", "connection: x-forwarded-for", "-f", EXAMPLE)
    assert ended.code == 1
    assert "Route      no route matches: the proxy answers 400\n" in ended.out
    assert "the proxy refuses the request with 400: the header Connection names x-forwarded-for, which" in ended.out


def test_the_default_method_is_get(explain: Callable[..., Any]) -> None:
    assert explain("http://website:8080/") == explain("GET", "http://website:8080/")


def test_the_shares_of_a_split_are_exact_fractions(explain: Callable[..., Any]) -> None:
    """R7, R11."""
    found = explain("POST", "http://website:8080/xy", "-H", "A: b")
    assert (found["service"], found["port"]) == ("default/website", 8080)
    assert found["route"] == {"object": SPLIT, "name": "g/m", "matches": []}
    shares = {item["service"]: (item["share"], item["readyEndpoints"]) for item in found["backends"]}
    assert shares == {
        f"default/website-{name}": ({"numerator": part, "denominator": 3}, 1) for name, part in (("v1", 2), ("v2", 1))
    }


@pytest.mark.parametrize(
    ("request_", "condition"),
    [
        (("POST", "http://website:8080/y", "-H", "a: b"), "path is '/y', wanted regex /x"),
        (("GET", "http://website:8080/x", "-H", "a: b"), "method is 'GET', wanted POST"),
        (("POST", "http://website:8080/x"), "header a is absent, wanted regex b"),
        (("POST", "http://website:8080/x", "-H", "a: bb"), "header a is 'bb', wanted regex b"),
    ],
)
def test_the_first_failed_condition_of_a_route_is_named(
    explain: Callable[..., Any], request_: tuple[str, ...], condition: str
) -> None:
    """R12. A request that matches no route reaches the root Service's own endpoints."""
    found = explain(*request_)
    assert found["candidates"][0] == {
        "route": {"object": SPLIT, "name": "g/m", "matches": []},
        "host": "",
        "result": "Failed",
        "message": condition,
    }
    assert found["route"]["object"] is None
    assert [item["service"] for item in found["backends"]] == ["default/website"]


def test_explain_shows_the_findings_on_objects_that_affect_the_request(explain: Callable[..., Any]) -> None:
    """R16."""
    (remark,) = explain("GET", "http://website:8080/")["remarks"]
    assert remark["reason"] == "MatchNotFound"
    assert "default/gone" in remark["message"]


@pytest.mark.parametrize("host", ["website", "website.default", "website.default.svc.cluster.local:8080"])
def test_explain_resolves_every_name_of_a_service(explain: Callable[..., Any], host: str) -> None:
    """R2."""
    assert explain("GET", f"http://{host}/")["service"] == "default/website"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("http://shop-only/", "-n", "shop"), "shop/shop-only"),
        (("http://website:8080/", "-n", "shop"), "shop/website"),
        (("http://website:8080/",), "default/website"),
        (("http://website.default:8080/", "-n", "shop"), "default/website"),
        (("http://shop-only.shop/",), "shop/shop-only"),
        (("http://shop-only/",), ""),
    ],
)
def test_a_short_host_name_is_a_service_in_the_namespace_of_n(
    explain: Callable[..., Any], tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    shop = [objects.service("website", 8080, namespace="shop"), objects.service("shop-only", 80, namespace="shop")]
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump_all(shop))
    assert explain(*arguments, "-f", "shop.yaml")["service"] == expected


def test_explain_shows_404_for_an_unknown_host_and_exits_with_1(run: Run) -> None:
    ended = run("explain", "GET", "http://gone/", "-f", EXAMPLE)
    assert ended.code == 1
    assert "no Service has this host" in ended.out
    assert "the proxy: 404" in ended.out


def test_explain_names_the_ports_of_a_service_without_the_requested_port(run: Run) -> None:
    ended = run("explain", "GET", "http://website.default:9/", "-f", EXAMPLE)
    assert ended.code == 1
    assert (
        "Service default/website has no port 9; its port is 8080 (http): did you mean http://website.default:8080/?"
        in ended.out
    )
    assert "no Service has this host" not in ended.out


def test_explain_names_the_cookie_of_a_sticky_split(run: Run) -> None:
    ended = run("explain", "GET", "http://website:8080/", "-H", "cookie: insider=yes", "-f", EXAMPLE)
    assert "Users      by the cookie side: a user stays with one backend" in ended.out
    assert "default/website-v1:8080    1/2      50%" in ended.out


def test_explain_shows_the_backend_that_a_sticky_split_selects_for_the_user(run: Run) -> None:
    """tests/e2e/test_sticky.py compares the backends with those of a real proxy."""
    backends = [
        next(line for line in ended.out.splitlines() if line.startswith("This user"))
        for name in ("alice", "bob", "carol", "dave")
        for ended in [
            run("explain", "GET", "http://website:8080/", "-H", f"cookie: insider=yes; side={name}", "-f", EXAMPLE)
        ]
    ]
    assert set(backends) == {"This user  default/website-v1:8080", "This user  default/website-v2:8080"}


def test_via_sends_the_request_to_a_gateway(run: Run) -> None:
    ended = run("explain", "GET", "http://edge.example/headers", "--via", "gateway/edge", "-f", GATEWAY, "-o", "json")
    status = json.loads(ended.out)["status"]
    assert (status["gateway"], status["port"], status["host"]) == ("default/edge", 80, "*")
    assert (status["route"]["object"]["kind"], status["route"]["object"]["name"]) == ("HTTPRoute", "filters")
    assert "set request header x-set: one" in [text.lower() for text in status["filterMessages"]]
    assert [item["share"]["numerator"] for item in status["backends"]] == [3, 1]
    assert "rewrite the host to v2.example" in status["backends"][1]["filterMessages"]


def test_a_listener_of_a_listener_set_is_named(run: Run) -> None:
    command = ("explain", "http://shop.example/", "--via", "gateway/edge", "-f", LISTENER_SETS)
    routed = run(*command)
    assert "Protocol   http, because the listener shop of ListenerSet teams/first has this protocol\n" in routed.out
    assert "Route      HTTPRoute teams/whole, rule 0\n" in routed.out
    own = run("explain", "http://own.example/", *command[2:])
    assert "Protocol   http, because the Gateway's listener has this protocol\n" in own.out


def test_the_certificate_that_a_gateway_needs_from_its_client_is_named(run: Run) -> None:
    by_url = {
        "https://shop.example/": "Client TLS certificate required, signed by an authority in ConfigMap default/employees or partners/partners\n",
        "https://db.example/": "Client TLS certificate required, signed by",
        "https://shop.example:8443/": "Client TLS certificate requested, but not required, signed by an authority in ConfigMap default/employees\n",
    }
    for url, line in by_url.items():
        assert line in run("explain", url, "--via", "gateway/edge", "-f", CLIENT_CERTIFICATES).out
    for url in ("https://passed.example/", "https://shop.example:7443/", "http://shop.example/"):
        assert "Client TLS" not in run("explain", url, "--via", "gateway/edge", "-f", CLIENT_CERTIFICATES).out


def test_the_server_name_of_a_url_selects_the_route_of_a_tls_connection(run: Run) -> None:
    """A name that two routes have belongs to the older one."""
    routed = run("explain", "https://mail.example.com/", "--via", "gateway/edge", "-f", SERVER_NAMES)
    assert "Gateway    default/edge, port 443, host mail.example.com\n" in routed.out
    assert "Protocol   tls, because the Gateway's listener has this protocol\n" in routed.out
    assert "Route      TLSRoute default/mail, rule 0\n" in routed.out
    closed = run("explain", "https://other.example.com/", "--via", "gateway/edge", "-f", SERVER_NAMES)
    assert "Route      no route has the server name: the connection is closed\n" in closed.out
    web = run("explain", "https://shop.example.com/", "--via", "gateway/edge", "-f", SERVER_NAMES)
    assert "Route      HTTPRoute default/shop, rule 0\n" in web.out


def test_the_server_name_option_selects_the_route_of_a_connection_to_a_service(run: Run) -> None:
    url, files = "https://db.default:5432/", ("-f", MESH_SERVER_NAMES)
    routed = run("explain", url, "--server-name", "eu.shop.example", *files)
    assert "Route      TLSRoute default/main, rule 0\n" in routed.out
    assert "host eu.shop.example is more specific" in routed.out  # than *.shop.example
    closed = run("explain", url, *files)  # its name is db.default
    assert "Route      no route has the server name: the connection is closed\n" in closed.out
    refused = run("explain", "pod/app", "--server-name", "eu.shop.example")
    assert "leave out -X, -H, --via, --from, --server-name, -f and --at" in refused.err


def test_a_url_without_a_port_means_the_port_of_its_scheme(run: Run, tmp_path: Path) -> None:
    ports = [{"name": "http", "port": 80}, {"name": "tls", "port": 443}]
    (tmp_path / "web.yaml").write_text(
        objects.manifest(objects.service("web", *ports), objects.service("api", ports[0]))
    )
    for url, port in (
        ("https://web", 443),
        ("http://web", 80),
        ("https://web:80", 80),
        ("https://api", 0),
    ):
        ended = run("explain", url, "-f", "web.yaml", "-o", "json")
        assert json.loads(ended.out)["status"]["port"] == port, url


def test_files_with_a_mistake_are_not_explained(run: Run, tmp_path: Path) -> None:
    """Without the rule that an API server would refuse, the request would be allowed."""
    access = objects.traffic_target("web", "web", ["client"], [{"kind": "HTTPRoute", "name": "all"}])
    (tmp_path / "web.yaml").write_text(objects.manifest(objects.service("web", 80), access))
    ended = run("explain", "http://web", "-f", "web.yaml")
    assert (ended.code, ended.out) == (1, "")
    assert "spec.rules[0].kind: must be one of HTTPRouteGroup, TCPRoute, UDPRoute, not 'HTTPRoute'" in ended.err
    assert "the manifests have mistakes, so there is no explanation" in ended.err


def test_a_server_name_without_an_effect_is_named(run: Run, tmp_path: Path) -> None:
    ports = [{"name": "http", "port": 80}, {"name": "tls", "port": 443}]
    (tmp_path / "web.yaml").write_text(objects.manifest(objects.service("web", *ports)))
    line = "Protocol   http, because the port's name is http; so the server name a.example has no effect\n"
    assert line in run("explain", "http://web", "--server-name", "a.example", "-f", "web.yaml").out
    assert "has no effect" not in run("explain", "https://web", "--server-name", "a.example", "-f", "web.yaml").out
    edge = ("--server-name", "a.example", "--via", "gateway/edge", "-f", LISTENER_SETS)
    assert "the server name a.example has no effect" in run("explain", "http://shop.example/", *edge).out


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ((f"http://{'a.' * 126}aa/",), "URL"),
        ((f"http://{'a.' * 200}@web/",), "URL"),
        (("https://web", "--server-name", "a." * 127), "--server-name"),
    ],
)
def test_a_host_has_at_most_as_many_characters_as_in_dns(run: Run, arguments: tuple[str, ...], option: str) -> None:
    ended = run("explain", *arguments, "-f", EXAMPLE)
    assert ended.code == 2
    assert f"Invalid value for '{option}'" in ended.err
    assert "has more than 253 characters" in " ".join(ended.err.split())
    longest = run("explain", f"http://{'a.' * 126}a:65535/", "-f", EXAMPLE)
    assert "no Service has this host" in longest.out


def test_explain_shows_a_redirect(run: Run) -> None:
    ended = run("explain", "GET", "http://edge.example/old/x", "--via", "gateway/edge", "-f", GATEWAY)
    assert ended.code == 0
    assert "redirect with 301: scheme https, host new.example, port 8443" in ended.out


def test_explain_shows_a_mirror_with_its_fraction(run: Run) -> None:
    """R46."""
    text = Path(MIRRORS).read_text()
    gateway = next(doc["metadata"]["name"] for doc in yaml.safe_load_all(text) if doc["kind"] == "Gateway")
    url = "http://mirror.example/half-percent"
    ended = run("explain", "GET", url, "--via", f"gateway/{gateway}", "-f", MIRRORS, "-o", "json")
    (mirror,) = json.loads(ended.out)["status"]["mirrors"]
    assert mirror["share"] == {"numerator": 1, "denominator": 200}


def test_explain_shows_that_a_tcp_port_closes_the_connection(run: Run) -> None:
    """R34."""
    ended = run("explain", "GET", "http://website:8080/", "-f", TCP)
    assert "Protocol   tcp, because the port's appProtocol is tcp" in ended.out
    assert "the connection is closed" in ended.out
    assert "StickyNotApplicable" in ended.out


@pytest.mark.parametrize(
    ("word", "kind", "spec"),
    [
        ("sts", "StatefulSet", {**SELECTING, "serviceName": "client"}),
        ("daemonset", "DaemonSet", SELECTING),
        ("jobs", "Job", {"template": TEMPLATE}),
        ("cj", "CronJob", {"schedule": "@daily", "jobTemplate": {"spec": {"template": TEMPLATE}}}),
        ("replicaset", "ReplicaSet", SELECTING),
        ("rc", "ReplicationController", {"template": TEMPLATE}),
    ],
)
def test_a_workload_of_each_kind_is_a_caller(
    run: Run, tmp_path: Path, word: str, kind: str, spec: dict[str, Any]
) -> None:
    names = names_of(kind)
    version = f"{names.group}/v1".lstrip("/")
    client = objects.obj(kind, "client", namespace="shop", version=version, spec=spec)
    (tmp_path / "shop.yaml").write_text(objects.manifest(client, objects.service("website", 8080, namespace="shop")))
    words = ("--from", f"{word}/client", "-n", "shop", "-f", "shop.yaml")
    shown = run("explain", "http://website:8080/", *words).out
    assert f"Caller     {kind} shop/client, spiffe://cluster.local/ns/shop/sa/reader" in shown
    missing = run("explain", "http://website:8080/", *words[2:], "--from", f"{word}/gone")
    assert f"{kind} shop/gone not found, or none of its pods runs" in missing.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("GET", "ftp://website/"), "is not an HTTP URL"),
        (("GET", "POST", "http://website/"), "is not a method and a URL"),
        (("-X", "POST", "GET", "http://website/"), "the method is GET already; write it once"),
        (("GET", "http://website/", "-H", "nonsense"), "'name: value'"),
        (("GET", "http://website/", "-H", "host: a", "-H", "Host: b"), "several Host headers"),
        (("GET", "http://website/", "--via", "edge"), "write gateway/NAME"),
        (
            ("GET", "http://website/", "--from", "website"),
            "deployment/NAME, statefulset/NAME, daemonset/NAME, job/NAME",
        ),
    ],
)
def test_wrong_usage_of_explain_exits_with_2(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ended = run("explain", *arguments, "-f", EXAMPLE)
    assert ended.code == 2
    assert message in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--via", "gateway/gone"), "Gateway default/gone is not found"),
        (("--from", "pod/gone"), "Pod default/gone not found"),
    ],
)
def test_a_missing_gateway_or_pod_is_an_error(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ended = run("explain", "GET", "http://website:8080/", *arguments, "-f", EXAMPLE)
    assert ended.code == 1
    assert message in ended.err


async def put(store: Store, *found: Any) -> None:
    for obj in found:
        assert kind_written(obj)
        await store.create(obj)


async def test_explain_without_files_uses_the_running_headgate(served: ServedMesh) -> None:
    await put(served.store, *split_objects())
    ended = await served.run("explain", "POST", "http://website:8080/x", "-H", "a: b", "-o", "json")
    found = json.loads(ended.out)["status"]
    assert ended.code == 1  # no endpoint is ready
    assert found["service"] == "default/website"
    assert [item["result"] for item in found["candidates"]] == ["Matched", "NotTried"]
    assert {item["statusCode"] for item in found["backends"]} == {503}


async def test_the_running_headgate_resolves_a_short_host_name_in_the_namespace_of_n_or_of_the_context(
    served: ServedMesh,
) -> None:
    await served.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    for namespace in ("default", "shop"):
        await served.store.create(objects.service("website", 8080, namespace=namespace))
    shown = await served.run("explain", "http://website:8080/", "-n", "shop")
    assert "Service    shop/website, port 8080\n" in shown.out
    config = yaml.safe_load((served.state / "kubeconfig").read_text())
    config["contexts"][0]["context"]["namespace"] = "shop"
    (own := served.state / "of-shop").write_text(yaml.safe_dump(config))
    shown = await served.run("explain", "http://website:8080/", "--kubeconfig", str(own))
    assert "Service    shop/website, port 8080\n" in shown.out


async def test_explain_reports_the_same_errors_for_the_running_headgate_as_for_files(served: ServedMesh) -> None:
    await put(served.store, *split_objects())
    for arguments, code, words in (
        (("http://website:8080/", "--from", "pod/missing"), 1, "Pod default/missing not found"),
        (("http://website:8080/", "--via", "gateway/none"), 1, "Gateway default/none is not found or serves no port"),
        (
            ("http://website:8080/", "--from", "website"),
            2,
            "'website' is not a client; write pod/NAME, deployment/NAME",
        ),
        (("ftp://website/",), 2, "'ftp://website/' is not an HTTP URL"),
    ):
        ended = await served.run("explain", *arguments)
        assert (ended.code, words in " ".join(ended.err.split())) == (code, True), ended.err


async def test_each_header_of_the_request_reaches_the_running_headgate(served: ServedMesh) -> None:
    await put(served.store, *split_objects())
    sent = ("-H", "x-a: one & two", "-H", "x-a: three", "-H", "a: b")
    ended = await served.run("explain", "POST", "http://website:8080/x?q=1&r=%20", *sent, "-o", "json")
    found = json.loads(ended.out)["status"]
    assert found["url"] == "http://website:8080/x?q=1&r=%20"
    assert found["candidates"][0]["result"] == "Matched"


def test_explain_shows_the_settings_about_failing_endpoints(run: Run) -> None:
    found = json.loads(run("explain", "http://shop:8080/", "-f", RESILIENCE, "-o", "json").out)["status"]
    assert found["filterMessages"] == [
        "timeout of the request: 10000 ms",
        "timeout of each attempt: 2000 ms",
        "retries: up to 3, on 503, unavailable, gateway-error, reset, at most 20% of the active requests",
        (
            "ejection of endpoints: after 5 gateway errors or 5 attempts without a response or 7 5xx responses in a row, for 1m0s, "
            "at most 80%"
        ),
        "limit of connections: 100",
        "limit of requests: 1000",
        "timeout of connecting: 500 ms",
        "idle connections are closed after 60000 ms",
    ]
    found = json.loads(run("explain", "http://plain:8080/", "-f", RESILIENCE, "-o", "json").out)["status"]
    assert found["filterMessages"] == [
        "retries: only requests that no application received",
        "ejection of endpoints: off",
    ]


@pytest.mark.parametrize(("flags", "decision"), [("01", "sampled"), ("00", "not sampled")])
def test_explain_shows_the_trace_of_a_client(run: Run, flags: str, decision: str) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    header = ("-H", f"traceparent: 00-{trace}-b7ad6b7169203331-{flags}")
    ended = run("explain", "GET", "http://website:8080/path", *header, "-f", EXAMPLE)
    assert f"Trace      {trace}, {decision} by the client; proxies send no spans without --otlp-traces\n" in ended.out


def test_explain_names_the_authorization_server_of_a_rule(run: Run) -> None:
    expected = {
        "http": (
            "only if allowed by default/auth:8080 over HTTP, the path after /check, with the headers cookie x-user, "
            "with up to 1024 bytes of the body, passing on its headers x-groups"
        ),
        "grpc": "only if allowed by default/auth:9000 over gRPC",
    }
    for path, words in expected.items():
        ended = run("explain", f"http://a.example/{path}", "--via", "gateway/edge", "-f", AUTHORIZED, "-o", "json")
        assert json.loads(ended.out)["status"]["filterMessages"] == [words]


def test_udp_urls_name_the_udp_port_of_a_gateway_and_not_the_tcp_port_with_its_number(run: Run) -> None:
    """The backends get datagrams without mutual TLS, and no sidecar authorizes them."""
    routed = run("explain", "udp://edge:53", "--via", "gateway/edge", "-f", DATAGRAMS)
    assert "Protocol   udp, because the Gateway's listener has this protocol\n" in routed.out
    assert "Route      UDPRoute default/dns, rule 0\n" in routed.out
    assert "default/dns-v1:53   9/10" in routed.out
    assert "in plaintext: UDP has no mutual TLS" in routed.out
    assert "its datagrams are dropped" in routed.out
    connected = run("explain", "http://edge:53", "--via", "gateway/edge", "-f", DATAGRAMS)
    assert "Route      TCPRoute default/dns, rule 0\n" in connected.out
    missing = run("explain", "udp://edge:54", "--via", "gateway/edge", "-f", DATAGRAMS)
    assert "does not serve port 54/UDP; it serves 53, 53/UDP, 514/UDP" in missing.err
    assert "headgate routes UDP for clients of Gateways only" in run("explain", "udp://edge:53", "-f", DATAGRAMS).err
    assert "udp://edge" in run("explain", "udp://edge", "--via", "gateway/edge", "-f", DATAGRAMS).err


@pytest.mark.parametrize(
    ("written", "sent"), [("/na\u00efve?q=a b", "/na%C3%AFve?q=a%20b"), ("/%C3%AF%", "/%C3%AF%"), ("/\udcff", "/%FF")]
)
def test_a_path_is_explained_as_browsers_send_it(explain: Callable[..., Any], written: str, sent: str) -> None:
    """`try` sends it so too."""
    explanation = explain(f"http://website:8080{written}")
    assert (explanation["url"], explanation["backends"][0]["statusCode"]) == (f"http://website:8080{sent}", 0)


def test_a_host_header_is_matched_and_does_not_change_the_destination(run: Run, tmp_path: Path) -> None:
    """As with curl; without the header a condition on the host sees the URL's, with its port."""
    called = objects.service("website", 8080, selector={"app": "website"})
    group = objects.http_route_group("g", {"m": {"headers": {"host": "website.default"}}})
    target = objects.traffic_target("t", "website", ["reader"], [objects.http_rule("g")])
    labels = {"app": "website"}
    app = objects.deployment("website", labels=labels, template={"account": "website"})
    client = objects.deployment("client", template={"account": "reader"})
    (tmp_path / "a.yaml").write_text(objects.manifest(called, group, target, app, client))
    words = ("explain", "http://website.default:8080/", "--from", "deployment/client", "-f", "a.yaml")
    denied, allowed = run(*words), run(*words, "-H", "Host: website.default")
    assert (denied.code, "website.default:8080" in denied.out) == (1, True)
    assert allowed.code == 0
    assert "Service    default/website, port 8080" in allowed.out
    assert run(*words, "-H", "Host: other.default").code == 1
