"""Three applications that are not headgate's own run unchanged on one machine."""

import os

import pytest
from tests.e2e.applications.checks import APPLICATIONS, CHECKS, wait_rolled_out
from tests.e2e.running_mesh import BIN, RunningMesh, mesh_in_a_new_directory

from headgate.standalone.network.choice import missing

needs_networks = pytest.mark.skipif(bool(missing()), reason=missing() or "networks of pods are to be had")


class Machine:
    """The namespace `default` of a running mesh; it implements `checks.ApplicationHost`."""

    namespace = "default"

    def __init__(self, mesh: RunningMesh) -> None:
        self._mesh = mesh

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """Run kubectl."""
        return self._mesh.kubectl(*words, stdin=stdin)


@needs_networks
@pytest.mark.parametrize("application", CHECKS)
def test_an_application_with_fixed_ports_runs_unchanged_in_networks_of_pods(
    application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its programs know neither $PORT nor http_proxy. They get the Python of the tests, which has grpcio."""
    monkeypatch.setenv("PATH", str(BIN), prepend=os.pathsep)
    with mesh_in_a_new_directory(str(APPLICATIONS / application), "--network", "pod") as mesh:
        host = Machine(mesh)
        wait_rolled_out(host)
        CHECKS[application](host)
        assert mesh.stop() == 0


def test_in_the_machines_network_failures_of_fixed_ports_and_names_have_a_reason_and_a_way_out(
    unstarted: RunningMesh,
) -> None:
    mesh = unstarted
    mesh.options = (str(APPLICATIONS / "voting"), "--network", "host")
    mesh.launch()

    def message_with(pod: str, text: str) -> str:
        """Wait for a message about a pod that has a text: a probe may fail before the program ends."""
        line = mesh.line(
            lambda line: "pod" in line and line["pod"]["name"].startswith(pod) and text in line["pod"]["message"]
        )
        return str(line["pod"]["message"])

    for pod, port in (("redis-", 6379), ("db-0", 5432)):
        message_with(pod, f"because its sidecar listens on {port}. With a fixed port, it needs a network of its own")
    unresolved = message_with("worker-", "its log says that a name is not resolved")
    assert "a network of its own (headgate up --network pod)" in unresolved
