"""One Envoy for all that is compared: the gateway's, and a sidecar's."""

import logging

import pytest
from tests.differential.lab import Lab
from tests.differential.sidecar_lab import SidecarLab


@pytest.fixture(scope="package", autouse=True)
def quiet_server():
    log = logging.getLogger("headgate.xds.server")
    log.setLevel(logging.ERROR)  # a refusal is in the failure's message already
    yield
    log.setLevel(logging.NOTSET)


@pytest.fixture(scope="package")
def lab():
    with Lab() as found:
        yield found


@pytest.fixture(scope="package")
def sidecar_lab():
    with SidecarLab() as found:
        yield found
