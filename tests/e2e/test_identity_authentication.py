"""The control plane authenticates xDS streams by token; a client without a valid token gets no configuration (R70)."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import CALLER, SERVER
from tests.e2e.running_mesh import RunningMesh
from tests.waiting import until
from tests.xds.proxies import Proxy, rejection

from headgate.xds.authentication import SECRET_BYTES, LocalTokens

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


def test_a_stream_without_a_valid_token_is_rejected_with_the_reason(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """The token is missing, malformed, signed by another headgate, expired, or of another pod."""
    mesh = new_mesh(manifests=rig.site(tmp_path))
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


def test_the_token_of_a_deleted_pod_is_rejected(new_mesh: Callable[..., RunningMesh], tmp_path: Path) -> None:
    mesh = new_mesh(manifests=rig.site(tmp_path))
    pod = rig.only_pod(mesh, CALLER)
    token = token_of(mesh, pod)
    mesh.kubectl("scale", "deployment", CALLER, "--replicas", "0")
    until(lambda: not rig.pods(mesh, CALLER))
    mesh.settle()
    code, text = Impostor(mesh).rejection(node_of(pod), token)
    assert code is UNKNOWN
    assert text == f"proxy {node_of(pod)} is unknown: no pod with a sidecar and no gateway has this node ID"
