"""One Envoy for all that is compared."""

import logging

import pytest
from tests.differential.lab import Lab


@pytest.fixture(scope="package")
def lab():
    logging.getLogger("headgate.xds.server").setLevel(logging.ERROR)  # a refusal is in the failure's message already
    with Lab() as found:
        yield found
