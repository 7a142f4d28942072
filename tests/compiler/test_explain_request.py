"""The port of a URL without one depends on the caller: HTTP proxies choose a port, connections by address have that of the scheme."""

from typing import Any

import pytest
from tests.make.objects import (
    Object,
    backed_service,
    backend_ref,
    gateway,
    listener,
    meshed_pod,
    pod,
    route,
    service,
)
from tests.make.values import compiled, snapshot

from headgate.compiler.explain_request import explain_request
from headgate.resources.explanations import ExplanationStatus
from headgate.resources.request_spec import RequestSpec

STOP = ["headgate.dev/stop-process"]


def on_node(name: str, address: str) -> Object:
    """Return a pod of one machine without a sidecar, in the machine's network."""
    made = pod(name, address, metadata={"finalizers": STOP})
    return {**made, "spec": {**made["spec"], "hostNetwork": True}}


CALLERS = [
    meshed_pod("transparent", "10.1.0.2", account="transparent"),
    meshed_pod("explicit", "127.1.128.3", account="explicit", mode="explicit"),
    pod("bare", "10.1.0.4"),
    pod("bare-here", "127.1.128.5", metadata={"finalizers": STOP}),
    pod("bare-in-network", "10.1.0.6", metadata={"finalizers": STOP}),
    on_node("bare-on-node", "10.1.0.7"),
]
WORLD = [
    *backed_service("cart", ("", "10.1.0.9")),
    service("web", {"name": "http", "port": 80}, {"name": "tls", "port": 443}, clusterIP="10.96.0.2"),
    service("six", {"name": "http", "port": 8080}, clusterIP="fd00::1"),
    service("db", {"name": "tls-sql", "port": 5432, "appProtocol": "tls"}, {"name": "mysql", "port": 3306}, clusterIP="10.96.0.3"),
    *CALLERS,
]  # fmt: skip
MISSING = "Service default/cart has no port 80; its port is 8080 (http): did you mean http://cart:8080/?"
BY_ADDRESS = ("pod/transparent", "sa/transparent", "pod/bare", "pod/bare-in-network")
BY_PROXY = ("pod/explicit", "sa/explicit", "pod/bare-here", "pod/bare-on-node", "sa/none", "")


def explained(url: str, caller: str = "", *, on_cluster: bool = False, **settings: Any) -> ExplanationStatus:
    request = RequestSpec(url=url, caller=caller)
    mesh = compiled(*WORLD, **settings)
    return explain_request(mesh, snapshot(*WORLD), request, on_cluster=on_cluster)


def outcome(explanation: ExplanationStatus) -> tuple[str, int, str, str]:
    backend = explanation.backends[0]
    return explanation.service, explanation.port, backend.reason, backend.message


@pytest.mark.parametrize("caller", BY_ADDRESS)
def test_a_client_that_connects_by_address_calls_port_80_and_learns_which_port_it_means(caller: str) -> None:
    explanation = explained("http://cart/", caller)
    assert outcome(explanation) == ("", 0, "NotConnected", MISSING)
    assert explanation.port_message == "the URL has no port, and 80 is that of http"


@pytest.mark.parametrize("url", ["http://outside.example/", "https://outside.example/", "http://192.0.2.1:81/"])
@pytest.mark.parametrize("caller", BY_ADDRESS)
def test_a_connection_by_address_to_a_host_outside_the_mesh_reaches_it(url: str, caller: str) -> None:
    """No proxy answers it: a transparent sidecar forwards the connection without reading it."""
    for access in ("selected", "deny"):
        explanation = explained(url, caller, access=access)
        (backend,) = explanation.backends
        assert (explanation.service, backend.reason, backend.status_code) == ("", "PassedThrough", 0)
        assert ("the sidecar passes the connection" in backend.message) is ("transparent" in caller)


@pytest.mark.parametrize("caller", BY_ADDRESS)
def test_a_sidecar_that_refuses_hosts_outside_the_mesh_closes_their_connections(caller: str) -> None:
    (backend,) = explained("http://outside.example/", caller, outbound="refuse").backends
    assert backend.reason == ("NotConnected" if "transparent" in caller else "PassedThrough")


@pytest.mark.parametrize(
    ("caller", "options", "reason"),
    [("pod/explicit", {}, "NoSuchHost"), ("pod/explicit", {"access": "deny"}, "NotVisible")],
)
def test_an_http_proxy_answers_requests_to_a_host_outside_the_mesh(caller: str, options: Any, reason: str) -> None:
    assert outcome(explained("http://outside.example/", caller, **options))[2] == reason


@pytest.mark.parametrize("caller", BY_PROXY)
def test_an_http_proxy_chooses_the_first_port_and_the_explanation_says_so(caller: str) -> None:
    explanation = explained("http://cart/", caller)
    assert (explanation.service, explanation.port) == ("default/cart", 8080)
    assert explanation.port_message == (
        "the URL has no port: the HTTP proxy takes the Service's first one, because the Service lacks 80. "
        "Behind a transparent sidecar, a client needs http://cart:8080/"
    )


@pytest.mark.parametrize("caller", ["", "sa/none"])
def test_clients_on_a_cluster_connect_by_address(caller: str) -> None:
    assert outcome(explained("http://cart/", caller, on_cluster=True)) == ("", 0, "NotConnected", MISSING)


@pytest.mark.parametrize("caller", [*BY_ADDRESS, *BY_PROXY])
def test_every_client_reaches_the_port_of_the_scheme_or_the_port_in_the_url(caller: str) -> None:
    for url, port in (("http://web", 80), ("https://web/", 443), ("http://web:443/", 443), ("https://web:80", 80)):
        explanation = explained(url, caller)
        assert (explanation.service, explanation.port) == ("default/web", port), url
        has_port = url.count(":") > 1
        assert bool(explanation.port_message) is not has_port, url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://cart/", "Service default/cart has no port 443; its port is 8080 (http)"),
        (
            "http://db/",
            "Service default/db has no port 80; its ports are 3306 (tcp-server-first), 5432 (tls)",
        ),
        (
            "https://db.default./x",
            "Service default/db has no port 443; its ports are 3306 (tcp-server-first), 5432 (tls): did you mean https://db.default.:5432/?",
        ),
        (
            "http://10.96.0.2:81/",
            "Service default/web has no port 81; its ports are 80 (http), 443 (tls): did you mean http://10.96.0.2:80/?",
        ),
        (
            "http://[fd00::1]/",
            "Service default/six has no port 80; its port is 8080 (http): did you mean http://[fd00::1]:8080/?",
        ),
    ],
)
def test_a_missing_port_is_named_with_the_ports_that_fit_the_scheme(url: str, message: str) -> None:
    assert outcome(explained(url, "pod/transparent")) == ("", 0, "NotConnected", message)


def test_an_https_client_of_an_http_proxy_asks_for_port_443() -> None:
    """It sends CONNECT with this port, and the proxy chooses no other one."""
    explanation = explained("https://cart/", "pod/explicit")
    assert outcome(explanation) == (
        "",
        0,
        "NoSuchPort",
        "Service default/cart has no port 443; its port is 8080 (http)",
    )
    assert explanation.backends[0].status_code == 404


def test_a_missing_port_is_named_to_clients_that_know_only_what_they_may_call() -> None:
    explanation = explained("http://cart/", "pod/transparent", access="deny")
    assert outcome(explanation)[2:] == ("NotConnected", MISSING)
    assert explained("http://nowhere/", "pod/transparent").port_message == ""


def redirect(host: str) -> Object:
    return {"type": "RequestRedirect", "requestRedirect": {"hostname": host}}


@pytest.mark.parametrize("hosts", [("a.example",), ("a.example", "b.example")])
def test_requests_through_a_gateway_get_no_suggestion_about_a_service_of_the_same_name(hosts: tuple[str, ...]) -> None:
    backends = [backend_ref("cart", 8080, filters=[redirect(host)]) for host in hosts]
    world = [
        *WORLD,
        gateway("edge", listener(80), status={"addresses": [{"type": "IPAddress", "value": "10.2.0.1"}]}),
        route("r", {"backendRefs": backends}, parents=[{"name": "edge"}]),
    ]
    request = RequestSpec(url="http://cart/", via="gateway/edge")
    explanation = explain_request(compiled(*world), snapshot(*world), request)
    assert [backend.message for backend in explanation.backends] == [f"to http://{host}/" for host in hosts]
