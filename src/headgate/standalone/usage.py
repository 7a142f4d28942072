"""The processor time and memory of containers and of this machine, from /proc, for `kubectl top`.

Nothing is measured between requests: a request compares two readings of the counters.
"""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from headgate.api.resource_usage import Measurement, Usage
from headgate.resources.meta import Key
from headgate.standalone.machine_node import NODE_NAME
from headgate.standalone.processes import stat_fields

Containers = Callable[[], Mapping[Key, Mapping[str, int]]]
"""A function that returns the process of each running container, by pod and name. It leads its session."""

SHORTEST_WINDOW_S, LONGEST_WINDOW_S = 1.0, 30.0
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The fields of /proc/PID/stat, counted from the state (proc_pid_stat(5)).
_SESSION, _TIMES, _STARTED, _RESIDENT = 3, slice(11, 15), 19, 21


class _Session(NamedTuple):
    """The processes of a session: their processor time with that of their ended children, and their memory."""

    ticks: int = 0
    pages: int = 0


class _Reading(NamedTuple):
    """The counters at a time (`clock` is monotonic). `sessions` has them by the pid and the start of the session's leader."""

    clock: float
    busy_ticks: int
    used_bytes: int
    sessions: Mapping[int, _Session]
    started: Mapping[int, str]


class UsageMeter:
    """Measures the usage of containers until now.

    The window begins at the last request that is at least `least_window_s` ago (1 s or more), if requests follow each other within 30 s.
    """

    def __init__(self, containers: Containers, *, least_window_s: float = SHORTEST_WINDOW_S) -> None:
        self._containers = containers
        self._least_window_s = least_window_s
        self._readings: list[_Reading] = []  # of one window, the newest one last
        self._lock = asyncio.Lock()

    async def measure(self) -> Measurement:
        """Return the usage in the window that has just ended. The first request takes the least window."""
        async with self._lock:
            if self._readings and time.monotonic() - self._readings[-1].clock >= LONGEST_WINDOW_S:
                self._readings.clear()
            if not self._readings:
                self._readings.append(await asyncio.to_thread(_read))
            missing = self._readings[0].clock + self._least_window_s - time.monotonic()
            if missing > 0:
                await asyncio.sleep(missing)
            if len(self._readings) == 1 or time.monotonic() - self._readings[-1].clock >= SHORTEST_WINDOW_S:
                self._readings.append(await asyncio.to_thread(_read))
            newest = self._readings[-1].clock
            while len(self._readings) > 2 and newest - self._readings[1].clock >= self._least_window_s:
                self._readings.pop(0)
            return _compare(self._readings[0], self._readings[-1], self._containers())


def _compare(before: _Reading, after: _Reading, containers: Mapping[Key, Mapping[str, int]]) -> Measurement:
    window = after.clock - before.clock

    def cores(ticks: int) -> float:
        return max(ticks, 0) / _TICKS_PER_SECOND / window

    def usage(pid: int) -> Usage:
        session = after.sessions[pid]
        is_same = before.started.get(pid) == after.started[pid]
        ticks = session.ticks - (before.sessions[pid].ticks if is_same else 0)
        return Usage(cores(ticks), session.pages * _PAGE_BYTES)

    measured = {
        key: {name: usage(pid) for name, pid in processes.items() if pid in after.started}
        for key, processes in containers.items()
    }
    node = Usage(cores(after.busy_ticks - before.busy_ticks), after.used_bytes)
    return Measurement(
        time.time(), window, {NODE_NAME: node}, {key: usages for key, usages in measured.items() if usages}
    )


def _read() -> _Reading:
    ticks: dict[int, int] = defaultdict(int)
    pages: dict[int, int] = defaultdict(int)
    started = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and (fields := stat_fields(int(path.name))):
            session = int(fields[_SESSION])
            ticks[session] += sum(map(int, fields[_TIMES]))
            pages[session] += int(fields[_RESIDENT])
            if session == int(path.name):
                started[session] = fields[_STARTED]
    sessions = {session: _Session(ticks[session], pages[session]) for session in started}
    return _Reading(time.monotonic(), _busy_ticks(), _used_bytes(), sessions, started)


def _busy_ticks() -> int:
    """Return the time in which the processors of the machine have worked, in ticks."""
    user, nice, system, _idle, _iowait, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return user + nice + system + sum(rest[:3])  # irq, softirq and steal; guests are counted in user


def _used_bytes() -> int:
    rows = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kilobytes = {row[0]: int(row[1]) for row in rows}
    return (kilobytes["MemTotal:"] - kilobytes["MemAvailable:"]) * 1024
