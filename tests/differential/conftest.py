"""Fixtures for the systems that are compared with the model: a gateway's and a sidecar's Envoy, and `headgate up`."""

from collections.abc import Iterator

import pytest
from tests.differential.commands_comparison import RunningMembers
from tests.differential.gateway_lab import GatewayLab
from tests.differential.lab import MEMBERS
from tests.differential.sidecar_lab import SidecarLab
from tests.e2e.running_mesh import mesh_in_a_new_directory


@pytest.fixture(scope="package")
def lab() -> Iterator[GatewayLab]:
    with GatewayLab() as lab:
        yield lab


@pytest.fixture(scope="package")
def sidecar_lab() -> Iterator[SidecarLab]:
    with SidecarLab() as lab:
        yield lab


@pytest.fixture(scope="package")
def running() -> Iterator[RunningMembers]:
    with mesh_in_a_new_directory() as up:
        yield RunningMembers(up, [up.backend(f"member {number}").address.port for number in range(MEMBERS)])
