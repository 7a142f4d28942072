"""The real Envoy accepts the configuration of every golden case."""

import os
from collections.abc import Iterator

import pytest
from msgspec import structs
from tests.envoy.rig import ADDRESS, EnvoyRig
from tests.golden.cases import CASES, compiled

from headgate.api.certificate import self_signed
from headgate.envoy.view import Node
from headgate.model.edge_tls import ListenerCertificate
from headgate.model.identities import PrivateText
from headgate.model.routing import Mesh
from headgate.standalone.address_pool import LAST_RANGE

UNPRIVILEGED = 1024


@pytest.fixture(scope="module")
def rig() -> Iterator[EnvoyRig]:
    with EnvoyRig() as rig:
        yield rig


def loopback(address: str) -> str:
    """Map a cluster address to a loopback address outside headgate's ranges, different in parallel test runs."""
    _, second, *rest = address.split(".") if address else ("", "0")
    return ".".join(["127", str(LAST_RANGE + 1 + (os.getpid() + int(second)) % 128), *rest]) if address else ""


def on_this_machine(mesh: Mesh) -> Mesh:
    """Return the mesh with addresses and ports that an unprivileged user may listen on, and with real certificates."""
    fronts = tuple(
        structs.replace(
            front,
            address=loopback(front.address),
            unbindable=tuple({*front.unbindable, *(port for port in front.ports if port < UNPRIVILEGED)}),
        )
        for front in mesh.frontends
    )
    chain, key = self_signed()
    ports = tuple(
        structs.replace(
            item,
            address=loopback(item.address),
            port=item.port + 10 * UNPRIVILEGED,
            tls=tuple(
                (name, ListenerCertificate(secret=shown.secret, chain=chain.decode(), key=PrivateText(key.decode())))
                for name, shown in item.tls
            ),
        )
        for item in mesh.gateways
    )
    return structs.replace(mesh, frontends=fronts, gateways=ports)


@pytest.mark.parametrize("name", CASES)
def test_envoy_accepts_the_configuration_of_a_golden_case(rig, name):
    rig.push(
        on_this_machine(compiled(name).mesh),
        Node(id=rig.node.id, proxy_address=ADDRESS, proxy_port=rig.address.port),
    )
