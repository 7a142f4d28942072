"""Measure the processor time of commands that ask one question, and of a start of `headgate up` until it is ready.

Ratios are to a Python that imports the command line's libraries and does nothing: that part is the libraries' own.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

HEADGATE = str(Path(sys.executable).with_name("headgate"))
LIBRARIES = "import aiohttp, msgspec, typer, yaml; from rich import console, table"
QUESTIONS = (
    ("status",),
    ("proxies",),
    ("history",),
    ("explain", "http://website:8080/"),
    ("wait", "trafficsplit/website"),
    ("version",),
)
USUAL, SMALLEST = 7, 1  # counted runs of each command
EXAMPLE = Path(__file__).parents[1] / "examples" / "canary"


async def measure(runs: int) -> None:
    """Print the median processor time of each command, and its ratio to the imports of its libraries."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory(prefix="hg") as directory:
        state = Path(directory, "state")
        up = [HEADGATE, "up", str(EXAMPLE), "--state", str(state)]
        with subprocess.Popen(up, stdout=subprocess.PIPE, text=True, env=environment) as server:
            try:
                start = _seconds_until_ready(server)
                environment["HEADGATE_STATE"] = str(state)
                environment.pop("KUBECONFIG", None)
                commands = {
                    "python": (sys.executable, "-c", "pass"),
                    "libraries": (sys.executable, "-c", LIBRARIES),
                    **{words[0]: (HEADGATE, *words) for words in QUESTIONS},
                }
                medians = _medians(commands, environment, runs)
            finally:
                server.terminate()
                server.communicate()
    libraries = medians["libraries"]
    for name, seconds in medians.items():
        print(f"{name:<10} {seconds:6.2f} s of processor time, ratio {seconds / libraries:.2f}")
    print(f"{'up':<10} {start:6.2f} s of processor time until it is ready, ratio {start / libraries:.2f}")


def _seconds_until_ready(server: "subprocess.Popen[str]") -> float:
    """Wait until `headgate up` is ready; return the processor time of its process, without Envoy and the workloads."""
    for line in server.stdout or ():
        if "headgate is up" in line:
            fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    raise SystemExit("headgate up ended before it was ready")


def _medians(commands: Mapping[str, Sequence[str]], environment: dict[str, str], runs: int) -> dict[str, float]:
    """Run all commands in turn; the first run warms caches up and does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs + 1):
        for name, command in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}
