"""Sticky splits: users keep their backend while weights change (requirements 2.8; docs/tasks/sticky.md)."""

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
from tests.draws import TIMES, fits
from tests.e2e.manifests import annotated, external, split_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.waiting import until
from tests.wire import Address, Client, Request

from headgate.compiler.sticky import StickyBackend, with_slots
from headgate.model.hash_slots import slot_of, slot_range_at
from headgate.model.routing import PortRef, Split, Sticky, Target

USERS = tuple(f"user-{number}" for number in range(300))
BackendByUser = Mapping[str, str]


@pytest.fixture
def backends(mesh: RunningMesh, namespace: str) -> Sequence[str]:
    """Create a root Service and three versions; return the names of the versions."""
    names = ("v1", "v2", "v3")
    mesh.apply(
        external("web", mesh.backend("root")),
        *(external(f"web-{name}", mesh.backend(name)) for name in names),
        namespace=namespace,
    )
    return names


def apply_split(mesh: RunningMesh, namespace: str, weights: Mapping[str, int], **annotations: str) -> None:
    named = {f"web-{name}": weight for name, weight in weights.items()}
    mesh.apply(annotated(split_manifest("web", "web", named), **annotations), namespace=namespace)


def ask_all(mesh: RunningMesh, requests: Mapping[str, Request]) -> BackendByUser:
    """Send each user's request, all over one connection; return the answering backend by user."""

    async def ask() -> BackendByUser:
        client = Client(next(iter(requests.values())))
        backends = {}
        for user, request in requests.items():
            client.change(request)
            backends[user] = (await client.ask()).answered_by
        client.close()
        return backends

    return mesh.network.run(ask())


def by_header(mesh: RunningMesh, namespace: str) -> Callable[[], BackendByUser]:
    request = mesh.request("web", 8080, namespace=namespace)
    return lambda: ask_all(mesh, {user: request._replace(headers={"x-user": user}) for user in USERS})


def shifted(before: BackendByUser, after: BackendByUser) -> Counter[tuple[str, str]]:
    """Return the number of users that moved, by old and new backend."""
    return Counter((before[user], after[user]) for user in USERS if before[user] != after[user])


def is_spread(count: int, share: float) -> bool:
    """Return whether a count of users is within 3 sigma of a share.

    The users and the hash function are fixed, so every run has the same result.
    """
    return abs(count - share * len(USERS)) <= 3 * math.sqrt(len(USERS) * share * (1 - share))


@pytest.mark.usefixtures("backends")
def test_raising_a_weight_moves_its_share_of_users_and_lowering_the_weight_moves_them_back(
    mesh: RunningMesh, namespace: str
) -> None:
    sides = by_header(mesh, namespace)
    history = []
    for percent in (0, 5, 20, 50, 100):
        apply_split(mesh, namespace, {"v1": 100 - percent, "v2": percent}, sticky="header:x-user")
        history.append(sides())
        assert is_spread(Counter(history[-1].values())["v2"], percent / 100)
    for before, after in itertools.pairwise(history):
        assert set(shifted(before, after)) == {("v1", "v2")}
    for percent, before in zip((50, 20, 5, 0), reversed(history[:-1]), strict=True):
        apply_split(mesh, namespace, {"v1": 100 - percent, "v2": percent}, sticky="header:x-user")
        assert sides() == before


@pytest.mark.usefixtures("backends")
def test_a_user_keeps_its_backend_for_all_requests_and_after_unrelated_changes(
    mesh: RunningMesh, namespace: str
) -> None:
    apply_split(mesh, namespace, {"v1": 70, "v2": 20, "v3": 10}, sticky="header:x-user")
    sides = by_header(mesh, namespace)
    first = sides()
    assert set(first.values()) == {"v1", "v2", "v3"}
    assert [sides() for _ in range(3)] == [first] * 3
    mesh.apply(external("web-v4", mesh.backend("v4")), namespace=namespace)
    assert sides() == first


@pytest.mark.usefixtures("backends")
def test_each_user_changes_its_backend_at_most_once_while_weights_rise_at_random(
    mesh: RunningMesh, namespace: str
) -> None:
    """The weights of v2 and v3 rise at different paces. Users leave v1 only; users of v2 and v3 never move."""
    drawn = random.Random(1)
    end = drawn.randint(1, 50), drawn.randint(1, 50)
    paces = [[*sorted(drawn.randint(0, most) for _ in range(4)), most] for most in end]
    sides = by_header(mesh, namespace)
    history = []
    for v2, v3 in zip(*paces, strict=True):
        apply_split(mesh, namespace, {"v1": 100 - v2 - v3, "v2": v2, "v3": v3}, sticky="header:x-user")
        history.append(sides())
    for user in USERS:
        path = [key for key, _ in itertools.groupby(step[user] for step in history)]
        assert len(path) <= 2, (user, path)
        assert path[0] == "v1" or len(path) == 1


@pytest.mark.usefixtures("backends")
@pytest.mark.parametrize("name", ["", "web", "Web"])
def test_a_client_without_a_cookie_gets_one_and_keeps_its_backend(mesh: RunningMesh, namespace: str, name: str) -> None:
    """Clients use the Service's address, or the HTTP proxy with the Service's name in lower or mixed case."""
    apply_split(mesh, namespace, {"v1": 50, "v2": 50}, sticky="cookie:side")
    request = mesh.request(name or "web", 8080, namespace=namespace, via="proxy" if name else "address")
    seen = Counter[str]()
    for _ in range(TIMES):
        first = mesh.ask(request)
        name, _, attributes = first.headers["set-cookie"].partition(";")
        assert name.startswith("side=")
        assert "HttpOnly" in attributes
        assert "Path=/" in attributes
        again = request._replace(headers={"cookie": name})
        answers = [mesh.ask(again) for _ in range(5)]
        assert {answer.answered_by for answer in answers} == {first.answered_by}
        assert not any("set-cookie" in answer.headers for answer in answers)
        seen[first.answered_by] += 1
    assert set(seen) == {"v1", "v2"}


@pytest.mark.usefixtures("backends")
def test_a_split_sets_the_cookie_before_the_second_backend_gets_requests(mesh: RunningMesh, namespace: str) -> None:
    apply_split(mesh, namespace, {"v1": 1, "v2": 0}, sticky="cookie:side")
    assert "side=" in mesh.ask(mesh.request("web", 8080, namespace=namespace)).headers["set-cookie"]


@pytest.mark.usefixtures("backends")
def test_requests_from_one_address_go_to_one_backend(mesh: RunningMesh, namespace: str) -> None:
    apply_split(mesh, namespace, {"v1": 50, "v2": 50}, sticky="source")
    request = mesh.request("web", 8080, namespace=namespace)
    assert len(ask_all(mesh, dict.fromkeys(USERS[:50], request)).values()) == 50
    assert len(set(ask_all(mesh, dict.fromkeys(USERS[:50], request)).values())) == 1


@pytest.mark.usefixtures("backends")
def test_a_request_without_the_sticky_header_goes_to_a_random_backend(mesh: RunningMesh, namespace: str) -> None:
    apply_split(mesh, namespace, {"v1": 50, "v2": 50}, sticky="header:x-user")
    counts = mesh.send(800, mesh.request("web", 8080, namespace=namespace))
    assert fits(counts["v1"], 0.5, of=800)


def test_users_of_a_backend_without_endpoints_get_503_and_return_to_it(mesh: RunningMesh, namespace: str) -> None:
    """D9, with `no-endpoints: fail`: other users are not affected."""
    late = mesh.backend("v2")
    mesh.apply(
        external("web"),
        external("web-v1", mesh.backend("v1")),
        external("web-v2", late),
        external("web-v3", mesh.backend("v3")),
        namespace=namespace,
    )
    weights = {"v1": 60, "v2": 20, "v3": 20}
    apply_split(mesh, namespace, weights, sticky="header:x-user", no_endpoints="fail")
    sides = by_header(mesh, namespace)
    before = sides()
    mesh.delete("endpointslice/web-v2-http-0", namespace)
    mesh.settle()
    assert sides() == {user: "503" if backend == "v2" else backend for user, backend in before.items()}
    mesh.apply(external("web-v2", late), namespace=namespace)
    assert sides() == before


@pytest.mark.usefixtures("backends")
def test_clients_of_a_gateway_and_of_the_service_share_the_cookie_of_a_split(mesh: RunningMesh, namespace: str) -> None:
    """R30, D13."""
    apply_split(mesh, namespace, {"v1": 50, "v2": 50}, sticky="cookie:side")
    listener = {"name": "http", "port": 8080, "protocol": "HTTP"}
    gateway = {"spec": {"gatewayClassName": "headgate", "listeners": [listener]}}
    rule = {"backendRefs": [{"name": "web", "port": 8080}]}
    route = {"spec": {"parentRefs": [{"name": "edge"}], "rules": [rule]}}
    for kind, content in (("Gateway", gateway), ("HTTPRoute", route)):
        head = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": {"name": "edge"}}
        mesh.apply(json.dumps(head | content), namespace=namespace)

    def address() -> str:
        status = mesh.get("gateway/edge", namespace).get("status") or {}
        return next((item["value"] for item in status.get("addresses") or ()), "")

    request = Request(Address(until(address), 8080), host="shop.example")
    until(lambda: mesh.ask(request).status == 200)
    inside = mesh.request("web", 8080, namespace=namespace)
    seen = set()
    for _ in range(TIMES):
        first = mesh.ask(request)
        cookie = {"cookie": first.headers["set-cookie"].partition(";")[0]}
        assert {mesh.ask(request._replace(headers=cookie)).answered_by for _ in range(3)} == {first.answered_by}
        assert mesh.ask(inside._replace(headers=cookie)).answered_by == first.answered_by
        seen.add(first.answered_by)
    assert seen == {"v1", "v2"}


@pytest.mark.parametrize("kind", ["header", "cookie"])
@pytest.mark.usefixtures("backends")
def test_the_proxy_selects_the_same_backend_for_each_user_as_the_model(
    mesh: RunningMesh, namespace: str, kind: str
) -> None:
    apply_split(mesh, namespace, {"v1": 60, "v2": 30, "v3": 10}, sticky=f"{kind}:user")
    request = mesh.request("web", 8080, namespace=namespace)
    headers = {user: {"cookie": f"a=b; user={user}"} if kind == "cookie" else {"user": user} for user in USERS}
    found = ask_all(mesh, {user: request._replace(headers=headers[user]) for user in USERS})
    split = mesh.get("trafficsplit/web", namespace)
    backends = [StickyBackend(PortRef(f"{namespace}/{item['service']}", 8080)) for item in split["spec"]["backends"]]
    weights = zip(backends, (60, 30, 10), strict=True)
    targets = tuple(Target(ref=backend.ref, weight=weight) for backend, weight in weights)
    sticky = with_slots(Split(targets=targets), Sticky(kind="source"), backends).sticky
    assert sticky is not None
    expected = {user: slot_range_at(sticky, slot_of(user)).ref for user in USERS}
    assert {user: f"{namespace}/web-{backend}" for user, backend in found.items()} == {
        user: ref.service if ref else "" for user, ref in expected.items()
    }


@pytest.mark.usefixtures("backends")
@pytest.mark.parametrize(("sticky", "used"), [("header:x-user", 1), ("cookie:side", 1), ("source", 2)])
def test_try_expects_the_requests_of_one_user_at_one_backend(
    mesh: RunningMesh, namespace: str, sticky: str, used: int
) -> None:
    """They have no source address, so that they are distributed by weight there, at random."""
    apply_split(mesh, namespace, {"v1": 1, "v2": 1}, sticky=sticky)
    user = ("-H", "x-user: alice", "-H", "cookie: side=alice")
    done = mesh.headgate("try", f"http://web.{namespace}:8080/", "--number", "100", *user, "-o", "json")
    document = json.loads(done.stdout)
    assert sum(row["requests"] > 0 for row in document["backends"]) == used
    if used == 1:
        assert (done.returncode, document["fits"]) == (0, True)
