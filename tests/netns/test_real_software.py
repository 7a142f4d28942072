"""Servers and clients that are not headgate's: through transparent sidecars, they exchange what they exchange without."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.e2e.real_software import SOFTWARE, missing, outputs, outputs_without_headgate, prepared
from tests.make.objects import Object
from tests.netns.namespaced_mesh import NamespacedMesh
from tests.netns.objects import ALL_STRICT, served
from tests.waiting import until
from tests.wire import Address

WHERE = Address("10.96.0.50", 9000)
TARGET = 9009


@pytest.fixture
def directory() -> Iterator[Path]:
    """Return a directory that other users can enter: PostgreSQL does not run as root."""
    with tempfile.TemporaryDirectory(prefix="hg") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("name", SOFTWARE)
def test_programs_exchange_the_same_as_without_headgate(
    lab: NamespacedMesh, services: Sequence[Object], directory: Path, name: str
) -> None:
    """In permissive and in strict mode. The server listens in one pod, and the clients run in another one."""
    software = SOFTWARE[name]
    if programs := missing(software):
        pytest.skip(f"{programs} not installed")
    expected = outputs_without_headgate(software, prepared(software, directory / "alone"))
    one, client = lab.members["one"], lab.members["client"]
    own = [*services, *served(name, WHERE, [one], TARGET, software.protocol)]
    started = subprocess.Popen(
        one.space.command("sh", "-c", software.server),
        cwd=prepared(software, directory / "pod"),
        env=os.environ | {"HOST": one.address, "PORT": str(TARGET)},
        start_new_session=True,
    )
    try:
        connect = ("bash", "-c", f"exec 3<> /dev/tcp/{one.address}/{TARGET}")
        until(lambda: not one.space.try_run(*connect).returncode, "the server listens")
        for strict in ([], ALL_STRICT):
            lab.serve(*own, *strict)
            assert outputs(software, WHERE, *client.space.command()) == expected
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait()
        lab.serve(*services)
