"""Persistent sessions of rules (GEP-1619): the conformance tests that the proposal lists, and what it says about weights."""

from base64 import b64encode
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from tests.draws import fits
from tests.e2e.gateway_api.hosts import NAMES
from tests.e2e.gateway_api.objects import change, edge_gateway, edge_route, fields, path
from tests.e2e.gateway_api.site import Site
from tests.e2e.manifests import external
from tests.ports import free_port
from tests.wire import Address


def weighted(**weights: int) -> list[dict[str, Any]]:
    return [{"name": name, "port": 8080, "weight": weight} for name, weight in weights.items()]


def rule_with_sessions(backends: list[dict[str, Any]], prefix: str = "/", **session: Any) -> Mapping[str, Any]:
    return {"matches": [path(prefix)], "backendRefs": backends, "sessionPersistence": session}


def begin(site: Site, address: Address, target: str = "/") -> tuple[str, str, str]:
    """Begin a session; return its backend, its cookie, and the attributes of the cookie."""
    answer = site.ask(address, f"any{target}")
    cookie, _, attributes = answer.headers["set-cookie"].partition(";")
    return answer.answered_by, cookie, attributes


def receivers(site: Site, address: Address, cookie: str, target: str = "/", count: int = 30) -> set[str]:
    return {site.ask(address, f"any{target}", cookie=cookie).answered_by for _ in range(count)}


def test_requests_of_a_session_go_to_one_endpoint_also_when_its_backend_has_no_weight_any_more(site: Site) -> None:
    site.serve("both", "v1", "v2")
    site.apply(edge_gateway(), edge_route("app", rule_with_sessions(weighted(both=3, v3=1), sessionName="user")))
    address = site.accepted("app")
    sessions = [begin(site, address) for _ in range(160)]
    counts = Counter(backend for backend, _, _ in sessions)
    assert set(counts) == {"v1", "v2", "v3"}
    assert fits(counts["v3"], 1 / 4, of=len(sessions))
    assert {attributes for _, _, attributes in sessions} == {" Path=/; SameSite=Lax; HttpOnly"}
    by_backend = {backend: cookie for backend, cookie, _ in sessions}
    assert all(cookie.startswith("user=") for cookie in by_backend.values())
    for backend, cookie in by_backend.items():
        assert receivers(site, address, cookie) == {backend}
    site.apply(edge_route("app", rule_with_sessions(weighted(both=0, v3=1), sessionName="user")))
    site.accepted("app")
    assert {begin(site, address)[0] for _ in range(10)} == {"v3"}
    for backend, cookie in by_backend.items():
        assert receivers(site, address, cookie) == {backend}
    site.delete("endpointslice/both-http-1")
    site.host.settle()
    assert receivers(site, address, by_backend["v1"]) == {"v1"}
    assert receivers(site, address, by_backend["v2"]) == {"v3"}


def test_each_rule_has_sessions_of_its_own_and_a_permanent_cookie_ends(site: Site) -> None:
    site.serve("both", "v1", "v2")
    permanent = {"absoluteTimeout": "5m", "cookieConfig": {"lifetimeType": "Permanent"}}
    site.apply(
        edge_gateway(),
        edge_route(
            "app", rule_with_sessions(weighted(both=1), "/a"), rule_with_sessions(weighted(both=1), "/b", **permanent)
        ),
    )
    address = site.accepted("app")
    (backend, cookie, attributes), (_, other, lasting) = begin(site, address, "/a"), begin(site, address, "/b")
    assert cookie.partition("=")[0] != other.partition("=")[0]
    assert attributes == " Path=/a; SameSite=Lax; HttpOnly"
    assert lasting == " Max-Age=300; Path=/b; SameSite=Lax; HttpOnly"
    assert receivers(site, address, f"{other}; {cookie}", "/a/x") == {backend}
    assert receivers(site, address, cookie, "/b", count=40) == {"v1", "v2"}


def test_a_session_by_header_avoids_the_share_of_a_failing_backend(site: Site) -> None:
    site.serve("none")
    backends = weighted(v1=1, v2=1, none=2)
    site.apply(edge_gateway(), edge_route("app", rule_with_sessions(backends, type="Header", sessionName="x-session")))
    address = site.accepted("app")
    answers = [site.ask(address, "/") for _ in range(120)]
    counts = Counter(answer.answered_by for answer in answers)
    assert fits(counts["503"], 1 / 2, of=len(answers))
    for answer in answers[:4]:
        if answer.status == 200:
            token = answer.headers["x-session"]
            assert {site.ask(address, "/", x_session=token).answered_by for _ in range(20)} == {answer.answered_by}


def test_backends_with_filters_of_their_own_keep_their_sessions(site: Site) -> None:
    backends = weighted(v1=1, v2=1)
    for backend in backends:
        backend["filters"] = [change("RequestHeaderModifier", set=fields(side=backend["name"]))]
    site.apply(edge_gateway(), edge_route("app", rule_with_sessions(backends, sessionName="user")))
    address = site.accepted("app")
    sessions = {backend: cookie for backend, cookie, _ in (begin(site, address) for _ in range(30))}
    assert set(sessions) == {"v1", "v2"}
    for backend, cookie in sessions.items():
        assert receivers(site, address, cookie) == {backend}
        assert site.backends[backend].last.headers["side"] == backend
    backends[0]["weight"] = 0
    site.apply(edge_route("app", rule_with_sessions(backends, sessionName="user")))
    site.accepted("app")
    assert {begin(site, address)[0] for _ in range(10)} == {"v2"}
    assert receivers(site, address, sessions["v1"]) == {"v1"}


def test_clients_in_the_mesh_have_sessions(site: Site) -> None:
    mesh_site = site.in_mesh()
    mesh_site.serve("echo", *NAMES)
    mesh_site.serve("both", "v1", "v2")
    parent = {"group": "", "kind": "Service", "name": "echo", "port": 8080}
    mesh_site.apply(edge_route("app", rule_with_sessions(weighted(both=1, v3=1), sessionName="user"), parent=parent))
    mesh_site.wait_for_parent("httproute/app", Accepted="Accepted", ResolvedRefs="ResolvedRefs")
    address = mesh_site.address("echo")
    backend, cookie, _ = begin(mesh_site, address)
    assert receivers(mesh_site, address, cookie) == {backend}


def test_a_session_leaves_an_endpoint_that_refuses_connections(site: Site) -> None:
    dead = SimpleNamespace(address=Address("127.0.0.1", free_port()))
    site.apply(
        external("dead", dead),
        edge_gateway(),
        edge_route("app", rule_with_sessions(weighted(v1=1, dead=1), type="Header", sessionName="x-session")),
    )
    address = site.accepted("app")
    token = b64encode(f"{dead.address.host}:{dead.address.port}".encode()).decode()
    for _ in range(10):
        answer = site.ask(address, "/", x_session=token)
        assert answer.answered_by == "v1"
        assert answer.headers["x-session"] != token
