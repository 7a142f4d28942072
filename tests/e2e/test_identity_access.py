"""Changes to TrafficTargets take effect on open connections (R69, R70, D21); the control plane authenticates proxies (R70)."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import CALLER, RAW, ROUTES, SERVER, WEB, ask, open_connections
from tests.e2e.running_mesh import RunningMesh
from tests.make.objects import authorization_policy, caller_rule, manifest
from tests.waiting import until
from tests.xds.proxies import Proxy, rejection

from headgate.xds.authentication import SECRET_BYTES, LocalTokens


@pytest.fixture
def mesh(shared_mesh: Callable[..., RunningMesh]) -> RunningMesh:
    """Return a mesh of a server and its caller."""
    return shared_mesh(rig.site)


def test_a_changed_traffic_target_denies_requests_on_open_connections(mesh: RunningMesh) -> None:
    """The proxy denies the next request on an open connection, and closes TCP connections within seconds."""
    with open_connections(mesh) as (web, raw):
        assert ask(mesh, web).answered_by == ask(mesh, raw).answered_by == SERVER
        mesh.submit(ROUTES)
        allowed = rig.access(CALLER, rule=WEB), rig.access(CALLER, rule=RAW)
        mesh.submit(*allowed)
        for name in ("web", "raw"):
            assert "1 of 1" in rig.headgate_wait(mesh, f"traffictarget/{name}-callers")
        assert ask(mesh, web).answered_by == SERVER
        assert web.opened == 1  # the connection with allowed requests stayed open
        mesh.network.run(rig.close(raw))  # its filter chain changed, so Envoy closes this connection
        assert ask(mesh, raw).answered_by == SERVER

        denied = rig.access("another-account", rule=WEB), rig.access("another-account", rule=RAW)
        mesh.submit(*denied)
        for name in ("web", "raw"):
            rig.headgate_wait(mesh, f"traffictarget/{name}-callers")
        before = rig.counted_requests(mesh.root / SERVER)
        refused = ask(mesh, web)
        assert refused.status == 403
        assert "spiffe://cluster.local/ns/default/sa/caller" in refused.body
        assert web.opened == 1
        mesh.network.run(raw.wait_until_closed())
        assert rig.counted_requests(mesh.root / SERVER) == before

        mesh.submit(*allowed)
        for name in ("web", "raw"):
            rig.headgate_wait(mesh, f"traffictarget/{name}-callers")
        assert ask(mesh, web).answered_by == SERVER
        assert web.opened == 1  # the connection with the denied request stayed open
        mesh.network.run(rig.close(raw))
        assert ask(mesh, raw).answered_by == SERVER
    assert mesh.complaints == []
    for name in ("web", "raw"):
        mesh.delete(f"traffictarget/{name}-callers")
    until(lambda: mesh.send(1, mesh.request(SERVER, 8080)) == {SERVER: 1})


def test_an_authorization_policy_allows_its_callers_at_its_ports(mesh: RunningMesh) -> None:
    """GEP-3779: the sidecars of the selected pods decide requests and connections by the caller's ServiceAccount and the port."""
    with open_connections(mesh) as (web, raw):
        for rule, web_status, opens in (
            (caller_rule(CALLER), 200, True),
            (caller_rule("*", ports=[rig.PORTS["http"]]), 200, False),
            (caller_rule("another-account"), 403, False),
            ({}, 200, True),
        ):
            mesh.submit(manifest(authorization_policy("server", {"app": SERVER}, rule)))
            assert "1 of 1" in rig.headgate_wait(mesh, "xauthorizationpolicy/server")
            assert ask(mesh, web).status == web_status
            mesh.network.run(rig.close(raw))
            assert (ask(mesh, raw).answered_by == SERVER) is opens
    assert rig.plaintext_answer(rig.pod_address(rig.only_pod(mesh, SERVER))) == b"HTTP/1.1 200 OK"
    (ancestor,) = mesh.get("xauthorizationpolicy/server")["status"]["ancestors"]
    assert {row["type"]: row["status"] for row in ancestor["conditions"]} == dict.fromkeys(
        ("Accepted", "Programmed", "ResolvedRefs"), "True"
    )
    mesh.delete("xauthorizationpolicy/server")
    until(lambda: mesh.send(1, mesh.request(SERVER, 8080)) == {SERVER: 1})


def test_an_allowed_caller_loses_no_request_when_traffic_targets_are_created_and_deleted(mesh: RunningMesh) -> None:
    """The first target denies all callers that it does not name."""
    target = rig.access(CALLER, rule=WEB)
    with mesh.load(*[rig.request_through_sidecar(rig.only_pod(mesh, CALLER))] * 3) as load:
        for _ in range(2):
            rig.wait_for_requests(load)
            mesh.submit(ROUTES, target)
            rig.headgate_wait(mesh, "traffictarget/web-callers")
            assert mesh.send(1, mesh.request(SERVER, 8080)) == {"403": 1}  # no target names the gateway
            rig.wait_for_requests(load)
            mesh.delete("traffictarget/web-callers")
            until(lambda: mesh.send(1, mesh.request(SERVER, 8080)) == {SERVER: 1})
    assert set(load.counts) == {SERVER}


# --- xDS streams

REFUSED, UNKNOWN = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.NOT_FOUND


class Impostor:
    """A client of the xDS socket that claims the node ID of a proxy."""

    def __init__(self, mesh: RunningMesh) -> None:
        self._world = mesh
        self._address = f"unix:{Path(mesh.instance['admin']).parent / 'xds.sock'}"

    def rejection(self, node: str, token: str = "") -> tuple[Any, str]:
        """Subscribe to all clusters; return the gRPC status and message that end the stream."""
        return rejection(self._address, node, token)

    def resources(self, node: str, token: str) -> int:
        """Subscribe to all types; return the number of resources in the first response."""

        async def ask() -> int:
            async with Proxy(self._address, node, token) as proxy:
                await proxy.request()
                return len((await proxy.receive()).resources)

        return self._world.network.run(ask())


def node_of(pod: Any) -> str:
    return f"sidecar/{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def token_of(mesh: RunningMesh, pod: Any) -> str:
    metadata = pod["metadata"]
    directory = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
    return (mesh.state / "pods" / directory / "_sidecar" / "credentials" / "token").read_text()


def test_a_stream_without_a_valid_token_is_rejected_with_the_reason(mesh: RunningMesh) -> None:
    """The token is missing, malformed, signed by another headgate, expired, or of another pod.

    A client without a valid token gets no configuration.
    """
    impostor, pod = Impostor(mesh), rig.only_pod(mesh, CALLER)
    node, other = node_of(pod), rig.only_pod(mesh, SERVER)
    secret = (mesh.state / "token-secret").read_bytes()
    past = LocalTokens(secret, lifetime=timedelta(hours=1), clock=lambda: time.time() - 7200)
    tokens = {
        "": "no token: send `authorization: Bearer <token>` with the token file of the bootstrap",
        "guessed": "the token is malformed: expected <node ID>.<expiry>.<signature>",
        LocalTokens(bytes(SECRET_BYTES), lifetime=timedelta(hours=1)).issue(
            node
        ): "the token is not signed by this headgate",
        past.issue(node): f"the token of {node} expired at ",
        token_of(mesh, other): f"the token belongs to {node_of(other)}, not to {node}",
    }
    for token, message in tokens.items():
        code, text = impostor.rejection(node, token)
        assert code is REFUSED, text
        assert text.startswith(message)
        assert f"rejected: {text}" in mesh.stderr
        assert not token or token not in mesh.stderr
    assert impostor.rejection("gateway", token_of(mesh, pod))[0] is REFUSED
    assert impostor.resources(node, token_of(mesh, pod)) > 0
    until(lambda: mesh.send(1, rig.request_through_sidecar(pod)) == {SERVER: 1})  # the pod's own proxy has reconnected


def test_the_token_of_a_deleted_pod_is_rejected(mesh: RunningMesh) -> None:
    pod = rig.only_pod(mesh, CALLER)
    token = token_of(mesh, pod)
    mesh.patch(f"deployment/{CALLER}", {"spec": {"replicas": 0}})
    until(lambda: not rig.pods(mesh, CALLER))
    mesh.settle()
    code, text = Impostor(mesh).rejection(node_of(pod), token)
    assert code is UNKNOWN
    assert text == f"proxy {node_of(pod)} is unknown: no pod with a sidecar and no gateway has this node ID"
    mesh.roll_out(CALLER, {"spec": {"replicas": 1}})
