"""What is allowed and what is taken away counts for connections that are open already (R69, R70, D21)."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import CALLER, SERVER, Dialled
from tests.e2e.wire import Answer
from tests.e2e.world import World, until

WEB = {"kind": "HTTPRouteGroup", "name": "web"}
RAW = {"kind": "TCPRoute", "name": "raw"}
ROUTES = (
    {
        "apiVersion": "specs.smi-spec.io/v1alpha4",
        "kind": "HTTPRouteGroup",
        "metadata": {"name": "web"},
        "spec": {"matches": [{"name": "all", "methods": ["*"], "pathRegex": ".*"}]},
    },
    {"apiVersion": "specs.smi-spec.io/v1alpha4", "kind": "TCPRoute", "metadata": {"name": "raw"}, "spec": {}},
)


@contextmanager
def open_connections(world: World) -> Iterator[tuple[Dialled, Dialled]]:
    """Clients in a pod, which call through its sidecar: one sends requests, the other bytes."""
    request = rig.through(rig.pod(world, CALLER))
    web, raw = Dialled(request.where, request=request), Dialled(*rig.raw_ways(world)[1])
    try:
        yield web, raw
    finally:
        world.network.run(rig.close(web, raw))


def ask(world: World, client: Dialled) -> Answer:
    return world.network.run(client.ask())


def test_what_is_taken_away_is_taken_from_live_connections(new_world: Callable[..., World], tmp_path: Path) -> None:
    """A request on an open connection is refused as soon as the target is in force; a connection ends within seconds."""
    world = new_world(manifests=rig.site(tmp_path))
    with open_connections(world) as (web, raw):
        assert ask(world, web).who == ask(world, raw).who == SERVER
        world.submit(*map(json.dumps, ROUTES))
        allowed = rig.target(CALLER, rule=WEB), rig.target(CALLER, rule=RAW)
        world.submit(*allowed)
        for name in ("web", "raw"):
            assert "1 of 1" in rig.wait(world, f"traffictarget/{name}-callers")
        assert ask(world, web).who == SERVER
        assert web.opened == 1  # allowed before and after
        world.network.run(rig.close(raw))  # its chain is another one now, so it ends within seconds
        assert ask(world, raw).who == SERVER

        denied = rig.target("somebody-else", rule=WEB), rig.target("somebody-else", rule=RAW)
        world.submit(*denied)
        for name in ("web", "raw"):
            rig.wait(world, f"traffictarget/{name}-callers")
        before = rig.counted(tmp_path / SERVER)
        refused = ask(world, web)
        assert refused.status == 403
        assert "spiffe://cluster.local/ns/default/sa/caller" in refused.body
        assert web.opened == 1
        world.network.run(raw.ended())
        assert rig.counted(tmp_path / SERVER) == before

        world.submit(*allowed)
        for name in ("web", "raw"):
            rig.wait(world, f"traffictarget/{name}-callers")
        assert ask(world, web).who == SERVER
        assert web.opened == 1  # the very connection that was refused
        world.network.run(rig.close(raw))
        assert ask(world, raw).who == SERVER
    assert world.stderr == ""


def test_allowed_callers_notice_nothing_when_targets_come_and_go(
    new_world: Callable[..., World], tmp_path: Path
) -> None:
    """The first target closes the server to everybody else; those whom it names go on, under load."""
    world = new_world(manifests=rig.site(tmp_path))
    target = rig.target(CALLER, rule=WEB)
    with world.load(*[rig.through(rig.pod(world, CALLER))] * 3) as load:
        for _ in range(2):
            rig.more(load)
            world.submit(*map(json.dumps, ROUTES), target)
            rig.wait(world, "traffictarget/web-callers")
            assert world.send(1, world.request(SERVER, 8080)) == {"403": 1}  # the gateway is not named
            rig.more(load)
            world.delete("traffictarget/web-callers")
            until(lambda: world.send(1, world.request(SERVER, 8080)) == {SERVER: 1})
    assert set(load.counts) == {SERVER}
