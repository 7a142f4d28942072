"""How long connections between proxies last, by how long certificates live."""

import pytest

from headgate.compiler.compile import compile_mesh
from headgate.compiler.snapshot import Snapshot
from headgate.identity.credentials import RENEWAL_JITTER, RENEWAL_SHARE
from headgate.settings import Settings


@pytest.mark.parametrize(("lifetime", "connection"), [(24 * 3600, 3600), (3600, 900), (10, 2)])
def test_a_connection_ends_before_the_certificate_that_it_began_with(lifetime, connection):
    mesh = compile_mesh(Snapshot(), Settings(certificate_seconds=lifetime)).mesh
    assert mesh.connection_seconds == connection
    assert mesh.connection_seconds <= lifetime * (
        1 - RENEWAL_SHARE - RENEWAL_JITTER
    )  # what is left of it at least, when it is used last
