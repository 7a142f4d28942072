"""The supervisor of a program, with shell scripts: restarts, reloads, ends, and the adoption by the next headgate."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headgate.backoff import Backoff, exact
from headgate.errors import ProxyError
from headgate.latest import Latest, until
from headgate.standalone import supervisor
from headgate.standalone.processes import Launch, Process, spawn
from headgate.standalone.supervisor import Program, ProgramRecord, Supervisor

DEADLINE_S = 60
FOREVER_S = 3600.0
RUNS = "exec sleep 60"
Restarts = Callable[[int], bool]


class Script:
    """A supervised shell script. It is restarted while `restarts` returns True for the number of its exits."""

    def __init__(
        self, directory: Path, text: str, *, restarts: Restarts = bool, first_s: float = 0.01, fingerprint: str = ""
    ) -> None:
        self.record = directory / "script.json"
        self.begun: Latest[int] = Latest(0)  # the number of starts
        self.reloads: Latest[int] = Latest(0)
        self.exits: Latest[tuple[tuple[int | None, float], ...]] = Latest(())
        self.failures: Latest[tuple[str, ...]] = Latest(())
        self.failing_reloads = 0
        self._launch = Launch(command=("/bin/sh", "-c", text), env=dict(os.environ), cwd=str(directory))
        self._log = directory / "script.log"
        self._restarts = restarts
        program = Program(
            record=self.record,
            prepare=self._prepare,
            begun=self._begun,
            failed=self._failed,
            ended=self._ended,
            fingerprint=lambda: fingerprint,
            reload=self._reload,
        )
        self.supervisor = Supervisor(program, Backoff(first_s=first_s, longest_s=FOREVER_S, draw=exact))

    async def _prepare(self) -> tuple[Launch, Path]:
        return self._launch, self._log

    async def _begun(self, _record: ProgramRecord) -> None:
        self.begun.set(self.begun.get() + 1)

    async def _failed(self, error: Exception, _pause: float) -> None:
        self.failures.set((*self.failures.get(), str(error)))

    async def _ended(self, code: int | None, pause: float) -> bool:
        self.exits.set((*self.exits.get(), (code, pause)))
        return self._restarts(len(self.exits.get()))

    async def _reload(self) -> None:
        if self.failing_reloads:
            self.failing_reloads -= 1
            raise ProxyError("not valid")
        self.reloads.set(self.reloads.get() + 1)

    @property
    def pid(self) -> int:
        """The process ID of the running script."""
        assert self.supervisor.process
        return self.supervisor.process.identity.pid

    def recorded(self) -> ProgramRecord:
        """Return the record for the next headgate."""
        return msgspec.json.decode(self.record.read_bytes(), type=ProgramRecord)


async def test_a_program_that_exits_is_restarted_after_growing_pauses(tmp_path: Path) -> None:
    script = Script(tmp_path, "exit 3", restarts=lambda exits: exits < 3)
    async with asyncio.timeout(DEADLINE_S):
        assert await script.supervisor.run() == 3
    assert script.exits.get() == ((3, 0.01), (3, 0.02), (3, 0.04))
    assert script.begun.get() == 3
    assert not script.record.exists()


async def test_a_change_ends_the_pause_before_a_restart(tmp_path: Path) -> None:
    """A corrected configuration is used at once, and not at the end of a long pause."""
    script = Script(tmp_path, "exit 1", restarts=lambda exits: exits < 2, first_s=FOREVER_S)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(script.supervisor.run())
        await until(lambda: len(script.exits.get()) == 1, script.exits)
        script.supervisor.change()
    assert script.begun.get() == 2


async def test_a_failed_reload_is_repeated_and_the_process_keeps_running(tmp_path: Path) -> None:
    script = Script(tmp_path, RUNS)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(script.supervisor.run())
        await until(lambda: script.begun.get() == 1, script.begun)
        pid, script.failing_reloads = script.pid, 2
        script.supervisor.change()
        await until(lambda: script.reloads.get() == 1, script.reloads)
        assert script.pid == pid
        assert script.failures.get() == ("not valid", "not valid")
        script.supervisor.leave()
    assert await script.supervisor.end(DEADLINE_S)


async def test_a_program_that_its_supervisor_left_keeps_running(tmp_path: Path) -> None:
    script = Script(tmp_path, RUNS)
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(script.supervisor.run())
        script.supervisor.leave()  # before the first step of the task
        assert await running is None
        assert script.begun.get() == 0
        running = asyncio.create_task(script.supervisor.run())
        await until(lambda: script.begun.get() == 1, script.begun)
        script.supervisor.leave()
        assert await running is None
        assert script.recorded().identity.pid == script.pid
        assert await script.supervisor.end(DEADLINE_S)
    assert script.exits.get() == ()


async def test_a_process_whose_record_cannot_be_written_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next headgate could not find it."""
    started: list[Process] = []

    def start(launch: Launch, log: Path) -> Process:
        started.append(spawn(launch, log))
        return started[-1]

    monkeypatch.setattr(supervisor, "spawn", start)
    script = Script(tmp_path, RUNS)
    script.record.mkdir()
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(script.supervisor.run())
        await until(lambda: bool(script.failures.get()), script.failures)
        script.record.rmdir()
        await until(lambda: script.begun.get() == 1, script.begun)
        assert await started[0].exited() == 128 + signal.SIGKILL
        assert script.recorded().identity == started[-1].identity
        script.supervisor.leave()
        await running
        assert await script.supervisor.end(DEADLINE_S)


async def test_the_next_headgate_adopts_the_process_with_its_fingerprint(tmp_path: Path) -> None:
    first = Script(tmp_path, RUNS, fingerprint="a")
    await first.supervisor.start()
    pid = first.pid
    first.supervisor.detach()
    second = Script(tmp_path, RUNS, fingerprint="b", restarts=lambda _: False)
    record = second.supervisor.adopt()
    assert record is not None
    assert (record.fingerprint, record.restarts, second.pid, second.supervisor.adopted) == ("a", 0, pid, True)
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(second.supervisor.run())
        os.kill(pid, signal.SIGKILL)
        assert await running is None
    assert [code for code, _ in second.exits.get()] == [None]
    assert second.begun.get() == 0


async def test_an_exit_while_no_headgate_runs_counts_as_a_restart(tmp_path: Path) -> None:
    first = Script(tmp_path, RUNS)
    await first.supervisor.start()
    process = first.supervisor.process
    assert process
    process.signal(signal.SIGKILL)
    await process.exited()
    second = Script(tmp_path, RUNS)
    assert second.supervisor.adopt()
    assert second.supervisor.process is None
    await second.supervisor.start()
    assert second.recorded().restarts == 1
    assert await second.supervisor.end(DEADLINE_S)
    assert Script(tmp_path, RUNS).supervisor.adopt() is None


async def test_a_detached_program_gets_the_requested_signal_before_it_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ready")
    script = Script(
        tmp_path, "trap 'echo completes its requests; exit 0' QUIT; echo > ready; while :; do sleep 0.01; done"
    )
    await script.supervisor.start()
    await asyncio.to_thread((tmp_path / "ready").read_text)
    script.supervisor.detach()
    assert await script.supervisor.end(DEADLINE_S, request=signal.SIGQUIT)
    assert (tmp_path / "script.log").read_text().endswith("completes its requests\n")
