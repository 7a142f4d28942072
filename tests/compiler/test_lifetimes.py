"""The maximum duration of a connection between proxies depends on the lifetime of certificates."""

import pytest

from headgate.compiler.compile import compile_mesh
from headgate.compiler.snapshot import Snapshot
from headgate.identity.credentials import RENEWAL_JITTER, RENEWAL_SHARE
from headgate.settings import Settings


@pytest.mark.parametrize(("lifetime", "connection"), [(24 * 3600, 3600), (3600, 900), (10, 2)])
def test_a_connection_ends_before_its_certificate_expires(lifetime, connection):
    mesh = compile_mesh(Snapshot(), Settings(certificate_seconds=lifetime)).mesh
    assert mesh.connection_seconds == connection
    assert mesh.connection_seconds <= lifetime * (
        1 - RENEWAL_SHARE - RENEWAL_JITTER
    )  # the shortest remaining lifetime of a certificate that is still in use
