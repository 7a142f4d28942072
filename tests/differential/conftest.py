"""Fixtures for the systems that are compared with the model: a gateway's and a sidecar's Envoy, and `headgate up`."""

import pytest
from tests.differential.lab import MEMBERS, Lab
from tests.differential.sidecar_lab import SidecarLab
from tests.e2e.running_mesh import mesh_in_a_new_directory


@pytest.fixture(scope="package")
def lab():
    with Lab() as found:
        yield found


@pytest.fixture(scope="package")
def sidecar_lab():
    with SidecarLab() as found:
        yield found


@pytest.fixture(scope="package")
def running():
    with mesh_in_a_new_directory() as found:
        found.members = [found.backend(f"member {number}") for number in range(MEMBERS)]
        yield found
