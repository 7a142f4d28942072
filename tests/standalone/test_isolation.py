"""Programs with mounts and a user of their own, started directly by root and in a user namespace."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from headgate.standalone.isolation import Isolation, MountPoint, MountSupport, launcher_command, read_failure
from headgate.standalone.processes import Launch, StandardFiles, StartError, spawn, start

NET_RAW = 13  # capabilities(7)
LIMITED = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")


class Rig(NamedTuple):
    """A directory for the volume of a program, and the command before the launcher, which may take away privileges."""

    directory: Path
    before: Sequence[str]

    async def run(self, *mounts: MountPoint, script: str, **isolation: object) -> str:
        """Run a shell script with mounts; return its output. Raises StartError."""
        settings = Isolation(mounts=mounts, staging=str(self.directory / "staging"), **isolation)  # type: ignore[arg-type]
        launch = Launch(command=("sh", "-c", script), env={"PATH": os.environ["PATH"]}, isolation=settings)
        log = self.directory / "log"
        log.unlink(missing_ok=True)
        process = spawn(launch, log)
        await process.executed()
        code = await process.exited()
        return log.read_text() if code == 0 else f"exit code {code}: {log.read_text()}"

    def mount(self, path: str, source: str = "volume", *, read_only: bool = False) -> MountPoint:
        return MountPoint(path=path, source=str(self.directory / source), field="volumeMounts[0]", read_only=read_only)


@pytest.fixture(params=["with the privileges of the tests", "in a user namespace"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    before = LIMITED if request.param == "in a user namespace" and os.geteuid() == 0 else ()
    if before:
        if not shutil.which("setpriv"):
            pytest.skip("needs setpriv, of util-linux")
        limited = tmp_path / "python"
        limited.write_text(f'#!/bin/sh\nexec {" ".join(LIMITED)} {shutil.which("python3")} "$@"\n')
        limited.chmod(0o755)
        monkeypatch.setattr("headgate.standalone.isolation.sys.executable", str(limited))
    for name in ("volume", "staging"):
        (tmp_path / name).mkdir()
    (tmp_path / "volume" / "a").write_text("content\n")
    if fault := await MountSupport().fault():
        pytest.skip(fault)
    return Rig(tmp_path, before)


async def test_a_program_sees_its_volume_beside_the_files_of_the_machine(rig):
    """The machine has neither of these paths, and gets none."""
    script = (
        "cat /headgate-test/x/a /etc/headgate-test/a /proc/self/comm; echo b > /headgate-test/x/b; test -e /etc/hosts"
    )
    mounts = (rig.mount("/headgate-test/x"), rig.mount("/etc/headgate-test", read_only=True))
    assert await rig.run(*mounts, script=script) == "content\ncontent\ncat\n"
    assert (rig.directory / "volume" / "b").read_text() == "b\n"
    assert not Path("/headgate-test").exists()
    assert not Path("/etc/headgate-test").exists()
    assert str(rig.directory) not in Path("/proc/self/mounts").read_text()


async def test_a_mount_can_be_a_file_and_cover_a_file_of_the_machine(rig):
    mounts = (rig.mount("/etc/hosts", "volume/a"), rig.mount("/headgate-test/file", "volume/a"))
    assert await rig.run(*mounts, script="cat /etc/hosts /headgate-test/file") == "content\ncontent\n"


async def test_a_read_only_mount_refuses_writes(rig):
    output = await rig.run(rig.mount("/headgate-test", read_only=True), script="echo b > /headgate-test/b")
    assert "Read-only file system" in output


async def test_a_volume_can_be_mounted_inside_another_volume(rig):
    (rig.directory / "outer").mkdir()
    mounts = (rig.mount("/headgate-test/in/ner"), rig.mount("/headgate-test", "outer"))
    assert await rig.run(*mounts, script="cat /headgate-test/in/ner/a; touch /headgate-test/b") == "content\n"
    assert (rig.directory / "outer" / "b").exists()


async def test_a_program_starts_in_its_working_directory_within_a_volume(rig):
    launch = Launch(
        command=("cat", "a"),
        env={"PATH": os.environ["PATH"]},
        cwd="/headgate-test",
        isolation=Isolation(mounts=(rig.mount("/headgate-test"),), staging=str(rig.directory / "staging")),
    )
    process = spawn(launch, rig.directory / "log")
    await process.executed()
    assert await process.exited() == 0
    assert (rig.directory / "log").read_text() == "content\n"


async def test_the_fault_names_what_could_not_be_mounted_or_run(rig):
    with pytest.raises(StartError, match=r"volumeMounts\[0\]: /headgate-test: No such file or directory"):
        await rig.run(rig.mount("/headgate-test", "none"), script="true")
    launch = Launch(
        command=("no-such-program",),
        env={"PATH": os.environ["PATH"]},
        isolation=Isolation(mounts=(rig.mount("/headgate-test"),), staging=str(rig.directory / "staging")),
    )
    with pytest.raises(StartError, match="program 'no-such-program' not found"):
        await spawn(launch, rig.directory / "log").executed()
    with pytest.raises(StartError, match="workingDir: directory /headgate-test/none not found"):
        await spawn(
            Launch(command=("true",), env=launch.env, cwd="/headgate-test/none", isolation=launch.isolation),
            rig.directory / "log",
        ).executed()


async def test_a_joining_program_sees_the_mounts_of_another_process(rig):
    isolation = Isolation(mounts=(rig.mount("/headgate-test/x"),), staging=str(rig.directory / "staging"))
    environment = {"PATH": os.environ["PATH"]}
    script = "echo state > /headgate-test/state; echo written; exec sleep 600"
    process = spawn(Launch(command=("sh", "-c", script), env=environment, isolation=isolation), rig.directory / "log")
    try:
        await process.executed()
        async with asyncio.timeout(60):
            while "written" not in (rig.directory / "log").read_text():
                await asyncio.sleep(0)  # the program has no event that the test could await
        join = Isolation(join=process.identity.pid)
        joined = Launch(command=("cat", "/headgate-test/state", "/headgate-test/x/a"), env=environment, isolation=join)
        reader = spawn(joined, rig.directory / "joined")
        await reader.executed()
        assert await reader.exited() == 0
        assert (rig.directory / "joined").read_text() == "state\ncontent\n"
    finally:
        await process.end(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start programs as another user")
async def test_a_program_of_another_user_gets_no_device_of_the_machine():
    """The output of probes and hooks is /dev/null, which must not belong to their user. The test uses a terminal instead."""
    master, device = os.openpty()
    try:
        owner = os.fstat(device).st_uid
        launch = Launch(command=("true",), env={"PATH": os.environ["PATH"]}, isolation=Isolation(user=54321))
        process = start(launch, StandardFiles(subprocess.DEVNULL, device, device))
        await process.executed()
        assert await process.exited() == 0
        assert os.fstat(device).st_uid == owner
    finally:
        os.close(master)
        os.close(device)


async def test_a_program_starts_with_the_signals_and_the_locale_that_it_was_given(rig):
    """Python ignores SIGPIPE when it starts, and sets LC_CTYPE where there is no locale."""
    script = 'echo "locale $LC_CTYPE"; exec grep SigIgn /proc/self/status'
    locale, ignored = (await rig.run(rig.mount("/headgate-test"), script=script)).splitlines()
    assert locale == "locale "
    assert int(ignored.split()[1], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1) == 0


async def test_a_volume_may_cover_the_sources_of_other_volumes(rig):
    """As when the state directory is in /app, an emptyDir is mounted at /app, and a ConfigMap at /app/config."""
    (rig.directory / "outer").mkdir()
    covering = MountPoint(path=str(rig.directory), source=str(rig.directory / "outer"), field="volumeMounts[1]")
    for inner in (str(rig.directory / "config"), "/headgate-test/config"):
        assert await rig.run(covering, rig.mount(inner), script=f"cat {inner}/a") == "content\n"


async def test_the_directories_above_a_mount_keep_their_owner_and_are_open_to_all_users(rig):
    home = rig.directory / "home"
    home.mkdir()
    owner = 54321 if os.geteuid() == 0 else os.geteuid()
    os.chown(home, owner, -1)
    is_mapped = not rig.before  # a user namespace shows other owners as the overflow user
    mask = os.umask(0o077)
    try:
        output = await rig.run(
            rig.mount(f"{home}/cache/x"), script=f"stat -c %u {home}; stat -c %a {home}/cache; umask"
        )
    finally:
        os.umask(mask)
    shown, mode, program_mask = output.splitlines()
    assert (mode, program_mask) == ("755", "0077")
    assert shown == str(owner) or not is_mapped


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setcap"), reason="needs root, and setcap of libcap2-bin")
def test_a_program_without_capabilities_gets_none_by_its_file():
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        program = shutil.copy(shutil.which("cat") or "", directory)
        subprocess.run(["setcap", "cap_net_raw+ep", program], check=True)
        isolation = Isolation(user=65534, group=65534, groups=())
        before, now = (_status(replace(isolation, drops_capabilities=drops), program) for drops in (False, True))
    assert int(before["CapEff"], 16) == 1 << NET_RAW
    assert int(now["CapEff"], 16) == 0
    assert now["NoNewPrivs"].strip() == "1"


def _status(isolation: Isolation, program: str) -> dict[str, str]:
    """Return the rows of /proc/self/status of an isolated program that writes its files, like cat."""
    reading, writing = os.pipe()
    command = launcher_command(isolation, (program, "/proc/self/status"), directory="/", pipe=writing)
    done = subprocess.run(command, pass_fds=(writing,), capture_output=True, text=True, check=False)
    os.close(writing)
    assert read_failure(reading) is None
    return dict(row.split(":", 1) for row in done.stdout.splitlines())
