"""Privileged ports: with and without the permission to listen on ports below 1024."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.manifests import external, split_manifest
from tests.e2e.running_mesh import RunningMesh, unprivileged

LOWEST = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())


@pytest.mark.skipif(LOWEST <= 80, reason="every user of this machine may listen on port 80")
def test_a_port_that_headgate_may_not_bind_is_reachable_through_the_http_proxy(
    new_mesh: Callable[..., RunningMesh],
) -> None:
    mesh = unprivileged(new_mesh)
    mesh.apply(
        external("web", port=80),
        external("web-v1", mesh.backend("v1"), port=80),
        split_manifest("web", "web", {"web-v1": 1}),
    )
    message = "headgate has no permission to listen on port 80; call http://web.default:80"
    kind, _, text = mesh.event("PortNotBindable", "web")
    assert (kind, message in text) == ("Warning", True)
    assert mesh.send(5, mesh.request("web", 80)) == {"ConnectionRefusedError": 5}
    assert mesh.send(5, mesh.request("web", 80, via="proxy")) == {"v1": 5}
    mesh.conditions("web", Programmed="True")
    mesh.apply(external("high", mesh.backend("high")))
    assert mesh.send(5, mesh.request("high", 8080)) == {"high": 5}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may listen on port 80")
def test_headgate_as_root_listens_on_privileged_ports(mesh: RunningMesh, namespace: str) -> None:
    mesh.apply(external("web", mesh.backend("v1"), port=80), namespace=namespace)
    assert mesh.send(5, mesh.request("web", 80, namespace=namespace)) == {"v1": 5}
    assert mesh.send(5, mesh.request("web", 80, namespace=namespace, via="proxy", host=f"web.{namespace}")) == {"v1": 5}
