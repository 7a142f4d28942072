"""Ports below 1024, and the user who may not listen on them."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.manifests import external, split
from tests.e2e.world import HEADGATE, World

NO_PEER = 65534
LOWEST = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())


def unprivileged(new_world: Callable[..., World]) -> World:
    """Start a world as a user who may not do everything."""
    if os.geteuid():
        return new_world()
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv, to run headgate as another user than root")
    tried = subprocess.run(["setpriv", f"--reuid={NO_PEER}", "--clear-groups", HEADGATE, "version"], check=False)
    if tried.returncode:
        pytest.skip("other users than root may not read this environment")
    return new_world(user=NO_PEER)


@pytest.mark.skipif(LOWEST <= 80, reason="here every user may listen on port 80")
def test_a_port_that_the_user_may_not_bind_is_reachable_through_the_proxy(new_world: Callable[..., World]) -> None:
    world = unprivileged(new_world)
    world.apply(
        external("web", port=80), external("web-v1", world.backend("v1"), port=80), split("web", "web", {"web-v1": 1})
    )
    message = "this user may not listen on port 80; reach it as http://web.default:80"
    kind, _, told = world.event("PortNotBindable", "web")
    assert (kind, message in told) == ("Warning", True)
    assert world.send(5, world.request("web", 80)) == {"ConnectionRefusedError": 5}
    assert world.send(5, world.request("web", 80, via="proxy")) == {"v1": 5}
    world.conditions("web", Programmed="True")
    world.apply(external("high", world.backend("high")))
    assert world.send(5, world.request("high", 8080)) == {"high": 5}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may listen on port 80")
def test_root_may_listen_on_every_port(world: World, namespace: str) -> None:
    world.apply(external("web", world.backend("v1"), port=80), namespace=namespace)
    assert world.send(5, world.request("web", 80, namespace=namespace)) == {"v1": 5}
    assert world.send(5, world.request("web", 80, namespace=namespace, via="proxy", host=f"web.{namespace}")) == {
        "v1": 5
    }
