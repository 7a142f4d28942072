"""One Envoy for all that is compared: the gateway's, and a sidecar's."""

import pytest
from tests.differential.lab import Lab
from tests.differential.sidecar_lab import SidecarLab


@pytest.fixture(scope="package")
def lab():
    with Lab() as found:
        yield found


@pytest.fixture(scope="package")
def sidecar_lab():
    with SidecarLab() as found:
        yield found
