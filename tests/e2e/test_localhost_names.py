"""Browsers reach Services by names below `.localhost`, at one port of the machine."""

import json
import re
import shutil
import subprocess

import pytest
from tests.browser import CHROMIUM, needs_chromium
from tests.e2e.manifests import external, protocol_service, service_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.protocols import upgrade, websocket_server
from tests.waiting import until
from tests.wire import Answer

from headgate.cli.reporter import proxy_variables

CURL = shutil.which("curl") or ""
LISTED = re.compile(r"Names of Services:\n(  http://\S+\n|  and \d+ more: .*\n)+")


def ask(mesh: RunningMesh, host: str) -> Answer:
    return mesh.ask(mesh.request_by_name(host))


def test_a_split_applies_to_each_name_of_a_service(mesh: RunningMesh, web: str) -> None:
    """R2: DNS compares names without letter case and a final dot."""
    for host in (f"web.{web}.localhost", f"WEB.{web}.Localhost", f"web.{web}.localhost.", f"http.web.{web}.localhost"):
        assert mesh.send(4, mesh.request_by_name(host)) == {"v1": 2, "v2": 2}, host
    assert mesh.send_h2(4, mesh.request_by_name("").address, f"web.{web}.localhost") == {"v1": 2, "v2": 2}


def test_a_name_without_namespace_is_a_service_of_the_namespace_default(mesh: RunningMesh, namespace: str) -> None:
    name = f"page-{namespace}"
    mesh.apply(external(name, mesh.backend("here")))
    assert mesh.send(2, mesh.request_by_name(f"{name}.localhost")) == {"here": 2}


def test_the_application_gets_the_host_of_the_browser(mesh: RunningMesh, namespace: str) -> None:
    """Redirects that an application makes of it lead to the same name and port."""
    backend = mesh.backend("v1")
    mesh.apply(external("web", backend), namespace=namespace)
    request = mesh.request_by_name(f"web.{namespace}.localhost")
    mesh.send(1, request)
    assert backend.hosts == {request.host: 1}


def test_the_name_of_a_port_leads_to_this_port(mesh: RunningMesh, namespace: str) -> None:
    """Without a port name, it is port 80, or the HTTP port with the lowest number."""
    ports = {"http-admin": 9000, "http": 8080, "tcp-db": 5432}
    mesh.apply(service_manifest("web", ports), namespace=namespace)
    for host in (f"web.{namespace}.localhost", f"http-admin.web.{namespace}.localhost"):
        assert ask(mesh, host).status == 503, host  # it has no endpoints
    no_http = ask(mesh, f"tcp-db.web.{namespace}.localhost")
    assert (no_http.status, f"leads to no HTTP port of the Service {namespace}/web" in no_http.body) == (404, True)


def test_an_unknown_name_gets_404_with_the_names_that_exist(mesh: RunningMesh, web: str) -> None:
    for host in (f"wep.{web}.localhost", "unknown.localhost", f"x.web.{web}.localhost", ".localhost"):
        answer = ask(mesh, host)
        assert (answer.status, answer.body.splitlines()[0]) == (404, "headgate: no Service has this name."), host
        assert LISTED.search(answer.body), answer.body
    index = ask(mesh, "localhost")
    assert (index.status, bool(LISTED.fullmatch(index.body))) == (200, True)


@pytest.mark.parametrize(
    "host", ["attacker.example", "127.0.0.1", "[::1]", "web.localhost.attacker.example", "notlocalhost"]
)
def test_only_names_below_localhost_are_served(mesh: RunningMesh, web: str, host: str) -> None:
    """A page that lets its own name resolve to the loopback address (DNS rebinding) learns nothing of the mesh."""
    answer = ask(mesh, host)
    assert answer.status == 404
    assert "only names that end in .localhost are served here" in answer.body
    assert web not in answer.body


def test_a_deleted_service_has_no_name_any_more(mesh: RunningMesh, web: str) -> None:
    host = f"web.{web}.localhost"
    assert ask(mesh, host).status == 200
    mesh.delete("service/web", namespace=web)
    until(lambda: ask(mesh, host).body.startswith("headgate: no Service has this name."))


def test_websockets_reach_a_service_by_its_name(mesh: RunningMesh, namespace: str) -> None:
    mesh.apply(
        protocol_service("chat", websocket_server(mesh.network, "chat"), app="kubernetes.io/ws"), namespace=namespace
    )
    request = mesh.request_by_name(f"chat.{namespace}.localhost")
    assert mesh.network.run(upgrade(request.address, "ping", host=request.host)) == ["101", "chat", "ping"]


def test_only_pages_of_names_below_localhost_open_websockets(mesh: RunningMesh, namespace: str) -> None:
    """Browsers let a page of any origin open WebSockets and read from them, so the proxy checks the origin."""
    mesh.apply(
        protocol_service("chat", websocket_server(mesh.network, "chat"), app="kubernetes.io/ws"), namespace=namespace
    )
    request = mesh.request_by_name(f"chat.{namespace}.localhost")
    for origin in (f"http://{request.host}", "https://web.localhost", "http://localhost:3000", "HTTP://LOCALHOST"):
        opened = mesh.network.run(upgrade(request.address, "ping", host=request.host, origin=origin))
        assert opened == ["101", "chat", "ping"], origin
    fields = {"connection": "Upgrade", "upgrade": "WebSocket"}
    for origin in (
        "https://evil.example",
        "http://localhost.evil.example",
        "http://notlocalhost",
        "https://evil.example/.localhost",
        "http://localhost@evil.example",
        "http://evil.example:80.localhost",
        "null",
    ):
        answer = mesh.ask(request._replace(headers={**fields, "origin": origin}))
        assert (answer.status, "may open WebSockets here" in answer.body) == (403, True), origin
    requests = mesh.ask(request._replace(host="localhost", headers={"origin": "https://evil.example"}))
    assert requests.status == 200  # the browser keeps the response from the page (CORS)


@pytest.mark.parametrize(
    "rest", [":80@evil.example", ":x@evil.example", ":80.evil.example", ":8080:8080", "@evil.example"]
)
def test_a_host_with_more_than_a_port_is_refused(mesh: RunningMesh, web: str, rest: str) -> None:
    """Such a host begins with a name of a Service and names another host to an application."""
    request = mesh.request_by_name(f"web.{web}.localhost")
    for host in (f"web.{web}.localhost{rest}", f"localhost{rest}"):
        answer = mesh.ask(request._replace(host=host))
        assert (answer.status, answer.body) == (400, "headgate: the Host header is no host with an optional port\n"), (
            host
        )


def test_tunnels_are_refused(mesh: RunningMesh, web: str) -> None:
    request = mesh.request_by_name(f"web.{web}.localhost")._replace(
        method="CONNECT", target=f"web.{web}.localhost:8080"
    )
    assert mesh.ask(request).status in {400, 404}


@pytest.mark.skipif(not CURL, reason="needs curl (Debian: curl)")
def test_curl_reaches_names_in_a_shell_that_uses_the_http_proxy(mesh: RunningMesh, web: str) -> None:
    """R2: with the variables that `headgate up` prints, names of Services lead to the HTTP proxy, and URLs below `.localhost` past it."""
    hosts = (f"web.{web}:8080", mesh.request_by_name(f"web.{web}.localhost").host)
    script = f"export {proxy_variables(str(mesh.proxy))}; for host; do {CURL} --silent http://$host/; done"
    shown = subprocess.run(
        ["sh", "-c", script, "sh", *hosts], capture_output=True, text=True, check=True, env={}
    ).stdout
    assert len(re.findall(r"v[12]", shown)) == len(hosts), shown


def test_explain_and_try_take_these_urls(mesh: RunningMesh, web: str) -> None:
    port = mesh.ready["localhostPort"]
    for host in (f"web.{web}.localhost", f"http.web.{web}.LOCALHOST."):
        shown = mesh.headgate("explain", f"http://{host}:{port}/").stdout
        assert f"TrafficSplit {web}/web" in shown, shown
    tried = json.loads(mesh.headgate("try", f"http://web.{web}.localhost:{port}/", "-n", "8", "-o", "json").stdout)
    assert tried["fits"], tried
    for url in (f"http://unknown.{web}.localhost:{port}/", f"http://web.{web}.localhost:{port + 1}/"):
        assert "NoSuchHost" in mesh.headgate("explain", url).stdout, url


def test_status_names_the_port(mesh: RunningMesh) -> None:
    port = mesh.ready["localhostPort"]
    assert f"browser       http://SERVICE.NAMESPACE.localhost:{port}\n" in mesh.headgate("status").stdout


@needs_chromium
def test_a_browser_opens_a_service_by_its_name(mesh: RunningMesh, web: str) -> None:
    page = f"http://web.{web}.localhost:{mesh.ready['localhostPort']}/"
    words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={mesh.root / 'chromium'}"]
    shown = subprocess.run([*words, "--dump-dom", page], capture_output=True, text=True, check=True).stdout
    assert re.search(r"\bv[12]\b", shown), shown
