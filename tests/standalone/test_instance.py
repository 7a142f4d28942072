"""What one headgate keeps for the next one, and for the user's shell: ports, a lock, an environment."""

import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.ports import free_port

from headgate.errors import HeadgateError
from headgate.standalone.instance import (
    Instance,
    free_address,
    listen,
    lock,
    write_environment,
    write_instance,
    written,
)

INSTANCE = Instance(
    api="https://127.0.0.1:1",
    kubeconfig="/a b/kubeconfig",
    proxy="127.0.0.1:1",
    probe="/probe",
    admin="/admin",
    pid=4711,
)


def test_port_0_is_the_port_of_the_last_run_when_that_is_free() -> None:
    before = f"127.0.0.1:{free_port()}"
    with listen("127.0.0.1:0", before) as again:
        assert written(again) == before
        with listen("127.0.0.1:0", before) as other:
            assert written(other) != before


def test_a_port_that_is_asked_for_and_taken_is_named() -> None:
    with listen("127.0.0.1:0", "") as first:
        taken = written(first)
        with pytest.raises(
            HeadgateError, match=f"can't listen on {taken}: Address already in use; choose another port"
        ):
            listen(taken, taken)


@pytest.mark.parametrize("address", ["0.0.0.0:80", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "localhost:80"])
def test_what_other_machines_could_reach_is_refused(address: str) -> None:
    with pytest.raises(HeadgateError, match="is not a loopback address; write for example"):
        listen(address, "")


def test_a_port_stays_with_the_program_that_still_has_it() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as adopted:
        before = written(adopted)
        assert free_address("127.0.0.1:0", before, held=True) == before
        assert free_address("127.0.0.1:0", before, held=False) != before


def test_a_second_headgate_is_told_which_one_has_the_state_directory(tmp_path: Path) -> None:
    write_instance(tmp_path, INSTANCE)
    with (
        lock(tmp_path),
        pytest.raises(HeadgateError, match=r"a headgate \(process 4711\) runs .* --state"),
        lock(tmp_path),
    ):
        pass
    with lock(tmp_path):
        pass


def test_a_shell_that_sources_the_environment_finds_all_after_its_own_programs(tmp_path: Path) -> None:
    state = tmp_path / "it's here"
    state.mkdir()
    path = write_environment(state, INSTANCE, tmp_path / "of headgate")
    shown = subprocess.run(
        ["sh", "-c", '. "$1" && echo "$PATH" && echo "$KUBECONFIG" && echo "$HEADGATE_STATE"', "-", path],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.splitlines() == [f"/usr/bin:/bin:{tmp_path}/of headgate", "/a b/kubeconfig", str(state)]
