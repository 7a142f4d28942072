"""Measure `headgate up` with a small mesh: the processor time of a start, of an idle minute and of the end, by program.

The mesh is a Service that is split between two Deployments of a small program: three Envoys and two pods.
"""

import contextlib
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.e2e.manifests import site

HEADGATE = str(Path(sys.executable).with_name("headgate"))


class Scale(NamedTuple):
    """The number of starts, and the seconds for which each mesh is idle."""

    starts: int
    idle_s: int


USUAL, SMALLEST = Scale(7, 20), Scale(1, 1)
_SETTLE_S = 2
"""The time after which a mesh is idle: by then all statuses are written."""
Measured = dict[str, float]


async def measure(scale: Scale) -> None:
    """Print the medians in seconds, and in seconds of processor time."""
    runs = [_run(scale.idle_s) for _ in range(scale.starts)]
    for name in runs[0]:
        print(f"{name:<45} {statistics.median(run[name] for run in runs):6.2f} s")


def _run(idle_s: int) -> Measured:
    """Start a mesh, leave it idle and end it; return what each part takes."""
    with tempfile.TemporaryDirectory(prefix="hg") as root:
        manifests = Path(root, "manifests")
        manifests.mkdir()
        for name, text in site(Path(root)).items():
            (manifests / name).write_text(text)
        before, began = _ended_children(), time.monotonic()
        command = [HEADGATE, "up", str(manifests), "--state", str(Path(root, "state"))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as headgate:
            assert headgate.stdout
            try:
                if not any("headgate is up" in line for line in headgate.stdout):
                    raise SystemExit("headgate up ended before it was ready")
                ready_s = time.monotonic() - began
                time.sleep(_SETTLE_S)
                started = by_program(headgate.pid)
                time.sleep(idle_s)
                idle = by_program(headgate.pid)
                idle_minute = {program: (idle[program] - started[program]) * 60 / idle_s for program in started}
            finally:
                signaled = time.monotonic()
                headgate.send_signal(signal.SIGINT)
            headgate.stdout.read()
        end_s = time.monotonic() - signaled
    return {
        **{f"start, processor time: {program}": seconds for program, seconds in started.items()},
        "start, processor time: all": sum(started.values()),
        "start, until ready": ready_s,
        **{f"idle minute, processor time: {program}": seconds for program, seconds in idle_minute.items()},
        "end, processor time": _ended_children() - before - sum(idle.values()),
        "end": end_s,
    }


def by_program(headgate: int) -> Measured:
    """Return the processor time of headgate, its Envoys and its pods so far, in seconds."""
    seconds = dict.fromkeys(("headgate", "Envoys", "pods"), 0.0)
    for pid in processes(headgate):
        with contextlib.suppress(FileNotFoundError):  # it has ended: the ticks of its parent have its own
            is_envoy = Path(f"/proc/{pid}/exe").readlink().name == "envoy"
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks = sum(map(int, fields[11:15]))  # with ended children
            program = "headgate" if pid == headgate else "Envoys" if is_envoy else "pods"
            seconds[program] += ticks / os.sysconf("SC_CLK_TCK")
    return seconds


def processes(pid: int) -> Iterator[int]:
    """Yield a process and the processes that it has started."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from processes(int(child))


def _ended_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
