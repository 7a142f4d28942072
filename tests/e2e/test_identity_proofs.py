"""A proxy gets what is its own when it proves who it is; whoever else can open the socket gets nothing (R70)."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import CALLER, SERVER
from tests.e2e.world import World, until
from tests.xds.proxies import Proxy

from headgate.xds.authentication import SECRET_BYTES, LocalTokens

REFUSED, UNKNOWN = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.NOT_FOUND


class Stranger:
    """Somebody who can open the xDS socket of a world, and says that he is a proxy."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._address = f"unix:{Path(world.instance['admin']).parent / 'xds.sock'}"

    def refused(self, node: str, token: str = "") -> tuple[Any, str]:
        """Ask for everything, and get nothing; return the status and its message."""

        async def ask() -> tuple[Any, str]:
            async with Proxy(self._address, node, token) as proxy:
                await proxy.request()
                return await proxy.ended()

        return self._world.network.run(ask())

    def served(self, node: str, token: str) -> int:
        """Ask for everything, and get it; return how many clusters there are."""

        async def ask() -> int:
            async with Proxy(self._address, node, token) as proxy:
                await proxy.request()
                return len((await proxy.receive()).resources)

        return self._world.network.run(ask())


def node_of(pod: Any) -> str:
    return f"sidecar/{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def token_of(world: World, pod: Any) -> str:
    metadata = pod["metadata"]
    directory = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
    return (world.state / "pods" / directory / "_sidecar" / "token").read_text()


def test_who_does_not_prove_who_he_is_gets_nothing(new_world: Callable[..., World], tmp_path: Path) -> None:
    """No token, a made up one, one of another headgate, an expired one, another pod's: each refusal says which it is."""
    world = new_world(manifests=rig.site(tmp_path))
    stranger, pod = Stranger(world), rig.pod(world, CALLER)
    node, other = node_of(pod), rig.pod(world, SERVER)
    past = LocalTokens((world.state / "token-secret").read_bytes(), clock=lambda: time.time() - 7200)
    tokens = {
        "": "no token: send `authorization: Bearer <token>` with the token file of the bootstrap",
        "guessed": "the token is malformed: expected <node ID>.<expiry>.<signature>",
        LocalTokens(bytes(SECRET_BYTES), lifetime=timedelta(hours=1)).issue(
            node
        ): "the token is not signed by this headgate",
        past.issue(node): f"the token of {node} expired at ",
        token_of(world, other): f"the token belongs to {node_of(other)}, not to {node}",
    }
    for token, message in tokens.items():
        code, told = stranger.refused(node, token)
        assert code is REFUSED
        assert told.startswith(message)
        assert f"stream of proxy {node} rejected: {told}" in world.stderr
        assert not token or token not in world.stderr
    assert stranger.refused("gateway", token_of(world, pod))[0] is REFUSED
    assert stranger.served(node, token_of(world, pod)) > 0
    until(
        lambda: world.send(1, rig.request_through_sidecar(pod)) == {SERVER: 1}
    )  # its own proxy has come back by itself


def test_the_token_of_a_pod_that_is_gone_opens_nothing(new_world: Callable[..., World], tmp_path: Path) -> None:
    world = new_world(manifests=rig.site(tmp_path))
    pod = rig.pod(world, CALLER)
    token = token_of(world, pod)
    world.kubectl("scale", "deployment", CALLER, "--replicas", "0")
    until(lambda: not rig.pods(world, CALLER))
    world.settle()
    code, told = Stranger(world).refused(node_of(pod), token)
    assert code is UNKNOWN
    assert told == f"proxy {node_of(pod)} is unknown: no pod with a sidecar and no gateway has this node ID"
