"""Processes that outlive headgate: start, exit, adoption and start errors."""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from headgate.resources.core.pod import ProcessIdentity
from headgate.standalone.isolation import Isolation, LaunchFailure
from headgate.standalone.processes import (
    Launch,
    StartError,
    accept_quit,
    adopt,
    inherited,
    launch_beside,
    launch_fault,
    missing_program,
    spawn,
)

# A stand-in for headgate: it starts a program, prints the program's identity and waits until it is killed.
HEADGATE = """
import asyncio, os, pathlib, sys, msgspec
from headgate.standalone.processes import Launch, spawn

async def main():
    launch = Launch(command=("sleep", "300"), env=dict(os.environ))
    process = spawn(launch, pathlib.Path(sys.argv[1]))
    print(msgspec.json.encode(process.identity).decode(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def launch(*command: str, cwd: str = "") -> Launch:
    return Launch(command=command, env={"PATH": os.environ["PATH"]}, cwd=cwd)


async def test_a_process_appends_to_its_log_and_returns_its_exit_code(tmp_path):
    process = spawn(launch("sh", "-c", "echo out; echo err >&2; exit 3"), tmp_path / "log")
    assert await process.exited() == 3
    assert (tmp_path / "log").read_text() == "out\nerr\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


async def test_the_exit_code_after_a_signal_is_128_plus_its_number(tmp_path):
    process = spawn(launch("sleep", "300"), tmp_path / "log")
    assert await process.end(5)
    assert await process.exited() == 128 + signal.SIGTERM


async def test_a_program_receives_quit_although_headgate_is_a_background_job(tmp_path):
    """nginx, for example, completes its requests after SIGQUIT."""
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # as shells start background jobs
    try:
        accept_quit()
        process = spawn(launch("sh", "-c", "trap 'echo done; exit 0' QUIT; kill -QUIT $$; exit 1"), tmp_path / "log")
        os.kill(os.getpid(), signal.SIGQUIT)  # headgate ignores it as before
    finally:
        signal.signal(signal.SIGQUIT, before)
    assert await process.exited() == 0
    assert (tmp_path / "log").read_text() == "done\n"


async def test_a_process_survives_a_killed_headgate_and_is_adopted(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", HEADGATE, str(tmp_path / "log")], stdout=subprocess.PIPE)
    assert parent.stdout
    identity = msgspec.json.decode(await asyncio.to_thread(parent.stdout.readline), type=ProcessIdentity)
    parent.kill()
    await asyncio.to_thread(parent.wait)
    parent.stdout.close()
    process = adopt(identity)
    assert process
    assert Path(f"/proc/{identity.pid}").exists()
    assert await process.end(5)
    assert await process.exited() is None


async def test_a_command_beside_a_process_has_its_environment_and_user(tmp_path):
    process = spawn(Launch(command=("sleep", "300"), env={"PATH": os.environ["PATH"], "A": "b=c"}), tmp_path / "log")
    beside = launch_beside(process.identity.pid, "/tmp")
    assert (beside.env["A"], beside.cwd) == ("b=c", "/tmp")
    assert beside.isolation
    assert beside.isolation.join == process.identity.pid
    assert beside.isolation.user == (0 if os.geteuid() == 0 else None)
    await process.end(5)
    with pytest.raises(OSError, match="No such file"):
        launch_beside(process.identity.pid, "")


async def test_a_reused_pid_is_not_adopted(tmp_path):
    process = spawn(launch("sleep", "300"), tmp_path / "log")
    other = msgspec.structs.replace(process.identity, started=process.identity.started - 1)
    assert adopt(other) is None
    assert adopt(msgspec.structs.replace(process.identity, boot="another")) is None
    await process.end(5)
    assert adopt(process.identity) is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (launch("no-such-program"), "command: program 'no-such-program' not found on this machine"),
        (launch("sleep", cwd="/no/such"), "workingDir: directory /no/such not found"),
        (launch("/etc/passwd"), "'/etc/passwd' is not executable; set its mode"),
        (launch("sleep", "\0"), "can't run"),
    ],
)
async def test_a_start_error_names_the_field_to_correct(tmp_path, wrong, message):
    with pytest.raises(StartError, match=message):
        spawn(wrong, tmp_path / "log")


@pytest.mark.parametrize("linked", [False, True])
def test_a_program_below_a_directory_that_the_user_may_not_enter_names_the_directory(linked):
    with tempfile.TemporaryDirectory() as directory:  # tmp_path itself may be closed to other users
        Path(directory).chmod(0o755)
        closed = Path(directory) / "closed"
        (closed / "bin").mkdir(parents=True)
        program = closed / "bin" / "envoy"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        link = Path(directory) / "link"
        link.symlink_to(program)
        closed.chmod(0o600)
        with unprivileged():
            fault = missing_program(launch(str(link if linked else program)))
        closed.chmod(0o700)
    assert f"may not enter {closed};" in fault
    assert "not executable" not in fault


@pytest.mark.parametrize(
    ("isolation", "enters"),
    [
        (Isolation(user=5000, group=5000, groups=()), False),
        (Isolation(user=5000, group=5000, groups=(os.getgid(),)), True),
        (Isolation(user=os.getuid(), groups=()), True),
        (Isolation(user=0), True),
    ],
)
def test_the_user_of_a_container_may_be_another_one(tmp_path, isolation, enters):
    tmp_path.chmod(0o710)
    assert isolation.may_enter(tmp_path) is enters


async def test_a_container_whose_user_may_not_enter_the_directory_of_its_program_names_it():
    failure = LaunchFailure(stage="command", errno=errno.EACCES, filename="", message="")
    with tempfile.TemporaryDirectory() as directory:  # it has the mode 0700
        program = Path(directory) / "envoy"
        program.touch(0o755)
        isolated = msgspec.structs.replace(launch(str(program)), isolation=Isolation(user=5000, group=5000, groups=()))
        assert f"its user may not enter {directory};" in launch_fault(isolated, failure)


@contextlib.contextmanager
def unprivileged():
    """Run as another user if this one is root, who may enter all directories."""
    before = os.geteuid()
    if before:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_programs_do_not_inherit_secrets_of_the_shell():
    environ = {"PATH": "/bin", "LC_ALL": "C", "TOKEN": "x", "http_proxy": "http://corp"}
    assert inherited(environ) == {"PATH": "/bin", "LC_ALL": "C"}
