"""XBackendTrafficPolicies: retries of a failing backend, sessions of Services, and statuses (GEP-3388, GEP-1619)."""

from typing import Any

import pytest
from tests.draws import fits
from tests.e2e.gateway_api.objects import edge_gateway, edge_route, path
from tests.e2e.gateway_api.site import Site, conditions
from tests.make.objects import manifest, traffic_policy
from tests.waiting import until
from tests.wire import Address

CALLS = 40


def policy(name: str, *services: str, **spec: Any) -> str:
    return manifest(traffic_policy(name, *services, namespace="", **spec))


def weighted(**weights: int) -> list[dict[str, Any]]:
    return [{"name": name, "port": 8080, "weight": weight} for name, weight in weights.items()]


def begin(site: Site, address: Address, target: str = "/") -> tuple[str, str]:
    """Begin a session; return its backend and its cookie, or an empty cookie if there is none."""
    answer = site.ask(address, f"any{target}")
    return answer.answered_by, answer.headers.get("set-cookie", "").partition(";")[0]


def receivers(site: Site, address: Address, cookie: str, target: str = "/") -> set[str]:
    return {site.ask(address, f"any{target}", cookie=cookie).answered_by for _ in range(CALLS)}


def state(site: Site, name: str) -> dict[str, dict[str, str]]:
    """Return the status of each condition of a policy, by Service."""
    entries = site.status(f"xbackendtrafficpolicy/{name}")["ancestors"]
    return {
        entry["ancestorRef"]["name"]: {kind: status for kind, (status, _) in conditions(entry).items()}
        for entry in entries
    }


def test_the_sessions_of_a_service_are_those_of_all_routes_to_it(site: Site) -> None:
    site.serve("both", "v1", "v2")
    rules = [{"matches": [path(prefix)], "backendRefs": weighted(both=1)} for prefix in ("/a", "/b")]
    site.apply(
        edge_gateway(), edge_route("app", *rules), policy("keep", "both", sessionPersistence={"sessionName": "user"})
    )
    address = site.accepted("app")
    until(lambda: begin(site, address, "/a")[1], "the proxies have the policy")
    served = {"Accepted": "True", "headgate.dev/Programmed": "True"}
    until(lambda: state(site, "keep") == {"both": served}, "the status of the policy")
    backend, cookie = begin(site, address, "/a")
    assert cookie.startswith("user-")
    assert receivers(site, address, cookie, "/a") == receivers(site, address, cookie, "/b") == {backend}
    site.delete("xbackendtrafficpolicy/keep")
    until(lambda: not begin(site, address, "/a")[1], "the proxies have lost the policy")
    assert receivers(site, address, cookie, "/a") == {"v1", "v2"}


def test_each_backend_of_a_rule_has_the_sessions_of_its_own_policy_also_without_a_weight(site: Site) -> None:
    web = {"backendRefs": weighted(v1=1, v2=1, v3=2)}
    site.apply(edge_gateway(), edge_route("app", web), policy("keep", "v1", "v2", sessionPersistence={}))
    address = site.accepted("app")
    until(lambda: any(begin(site, address)[1] for _ in range(CALLS)), "the proxies have the policy")
    begun = [begin(site, address) for _ in range(4 * CALLS)]
    by_backend = dict(begun)
    assert set(by_backend) == {"v1", "v2", "v3"}
    assert fits(sum(backend == "v3" for backend, _ in begun), 1 / 2, of=len(begun))
    assert by_backend.pop("v3") == ""
    for backend, cookie in by_backend.items():
        assert receivers(site, address, cookie) == {backend}
    site.apply(edge_route("app", {"backendRefs": weighted(v1=0, v2=0, v3=1)}))
    site.accepted("app")
    assert {begin(site, address)[0] for _ in range(CALLS)} == {"v3"}
    for backend, cookie in by_backend.items():
        assert receivers(site, address, cookie) == {backend}


@pytest.mark.parametrize("kind", ["Cookie", "Header"])
def test_policies_with_one_session_name_keep_the_sessions_of_each_backend_and_the_weights(
    site: Site, kind: str
) -> None:
    named = {"sessionName": "user", "type": kind}
    site.apply(
        edge_gateway(),
        edge_route("app", {"backendRefs": weighted(v1=1, v2=1, v3=2)}),
        policy("first", "v1", sessionPersistence=named, retryConstraint={}),
        policy("second", "v2", sessionPersistence=named),
    )
    address = site.accepted("app")

    def answer() -> tuple[str, tuple[str, str]]:
        """Return the backend of a new session, and the header of its next requests."""
        response = site.ask(address, "any/")
        tokens = [pair for pair in response.headers.items() if pair[0].startswith("user-")]
        cookie = response.headers.get("set-cookie", "").partition(";")[0]
        return response.answered_by, ("cookie", cookie) if cookie else next(iter(tokens), ("", ""))

    until(
        lambda: len({pair for pair in dict(answer() for _ in range(CALLS)).values() if pair[1]}) == 2,
        "the proxies have both policies",
    )
    begun = [answer() for _ in range(4 * CALLS)]
    for backend, share in {"v1": 1 / 4, "v2": 1 / 4, "v3": 1 / 2}.items():
        assert fits(sum(name == backend for name, _ in begun), share, of=len(begun))
    by_backend = dict(begun)
    assert by_backend.pop("v3") == ("", "")
    for backend, (name, token) in by_backend.items():
        assert {site.ask(address, "any/", **{name: token}).answered_by for _ in range(CALLS)} == {backend}


def test_clients_in_the_mesh_have_the_sessions_of_the_service_that_they_call(site: Site) -> None:
    mesh = site.in_mesh()
    mesh.serve("both", "v1", "v2")
    mesh.apply(policy("keep", "both", sessionPersistence={"type": "Header", "sessionName": "x-session"}))
    address = mesh.address("both")

    def token() -> dict[str, str]:
        headers = mesh.ask(address, "any/").headers
        return {name: text for name, text in headers.items() if name.startswith("x-session-")}

    until(token, "the client's proxy has the policy")
    held = token()
    assert len({mesh.ask(address, "any/", **held).answered_by for _ in range(CALLS)}) == 1


def test_the_older_policy_of_a_service_decides_until_it_is_deleted(site: Site) -> None:
    site.apply(policy("first", "v1", retryConstraint={}))
    until(lambda: state(site, "first")["v1"]["Accepted"] == "True", "the first policy is accepted")
    site.apply(policy("second", "v1", "v2", retryConstraint={"budget": {"percent": 5}}))
    until(
        lambda: {name: of["Accepted"] for name, of in state(site, "second").items()} == {"v1": "False", "v2": "True"},
        "the second policy is refused at one Service",
    )
    site.delete("xbackendtrafficpolicy/first")
    until(lambda: state(site, "second")["v1"]["Accepted"] == "True", "the second policy decides")
