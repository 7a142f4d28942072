"""Measure a control plane with many proxies: connecting, a change of one weight, a restart, and a storm of changes.

    python benchmarks/fleet.py --services 1000 --proxies 1000
    python benchmarks/fleet.py --growth 250 500 1000 2000

The control plane (`fleet_plane`) and the proxies (`fleet_proxies`) are separate processes with real streams and tokens.
The mesh has transparent sidecars, ten endpoints per Service, and a split for one Service in ten. The measure is the
control plane's CPU time. On two cores the proxies use the other core, so elapsed time depends on the proxies too.
"""

import argparse
import multiprocessing
import secrets
import statistics
import sys
import tempfile
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple, Self

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import fleet_plane, fleet_proxies

SERVICES, PROXIES = 100, 100
WEIGHTS = 5  # number of changes, measured one by one
STORM = 1000, 10.0  # number of changed weights, and the seconds in which they change
GROWTH = (50, 100, 200)
QUIET_S, QUIET_PART = 0.4, 0.03  # quiet means: at most this share of a CPU for this number of seconds
SCENARIOS = ("reconnect", "weight", "storm")
_SPAWN = multiprocessing.get_context("spawn")


class Process:
    """A child process that executes commands one at a time."""

    def __init__(self, work: Any, *arguments: Any) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process: SpawnProcess = _SPAWN.Process(target=work, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, *command: Any) -> Any:
        """Execute a command and return its result."""
        self._pipe.send(command)
        return self._pipe.recv()

    def end(self) -> None:
        """Kill the process."""
        self._pipe.send(("end",))
        self._process.join()


class Passed(NamedTuple):
    """The CPU time and counts of the control plane and of the proxies between two measurements."""

    processor: float
    proxies: float
    plane: dict[str, float]
    from_proxies: dict[str, Any]

    def resources(self, proxies: int) -> str:
        """Return how many resources each proxy received, by type."""
        sent = {
            type_url.rpartition(".")[2]: number / proxies
            for type_url, number in self.from_proxies["sent"].items()
            if number
        }
        return ", ".join(f"{number:g} {name}" for name, number in sent.items()) or "no resource"


class Lab:
    """A control plane and its proxies."""

    def __init__(self, services: int, proxies: int) -> None:
        self.services, self.proxies = services, proxies
        self._directory = tempfile.TemporaryDirectory(prefix="hg")
        self._secret = secrets.token_bytes(32)
        self._fleet = Process(fleet_proxies.run)
        self._before: tuple[dict[str, float], float] = ({}, 0.0)
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._fleet.end()
        self.plane.end()
        self._directory.cleanup()

    def start(self) -> None:
        """Start a control plane with the mesh."""
        self.plane = Process(fleet_plane.run, self._directory.name, self._secret)
        self._named = self.plane.ask("start", self.services, self.proxies)

    def connect(self) -> None:
        """Connect all proxies."""
        nodes = fleet_plane.node_ids(self.services, self.proxies)
        self._fleet.ask("connect", f"{self._directory.name}/xds.sock", self._named, self._secret, nodes)

    def begin(self) -> None:
        """Start the measurement."""
        self._before = self.plane.ask("begin"), self._fleet.ask("begin")

    def passed(self) -> Passed:
        """Wait until the control plane is quiet, and return the CPU time and counts since `begin`."""
        while True:
            usage = self.plane.ask("usage")
            time.sleep(QUIET_S)
            if self.plane.ask("usage")["processor"] - usage["processor"] < QUIET_S * QUIET_PART:
                break
        from_proxies = self._fleet.ask("report")
        before, proxies = self._before
        return Passed(
            usage["processor"] - before["processor"], from_proxies["processor"] - proxies, usage, from_proxies
        )


def connect(lab: Lab) -> Passed:
    """Connect all proxies for the first time."""
    lab.begin()
    began = time.monotonic()
    lab.connect()
    return _report("first connection of all", lab, began)


def weights(lab: Lab) -> float:
    """Change one weight a few times; return the median CPU time."""
    found = []
    for weight in range(1, WEIGHTS + 1):
        lab.begin()
        began, generation = lab.plane.ask("write", 0, weight)
        programmed = lab.plane.ask("programmed", 0, generation) - began
        passed = lab.passed()
        from_proxies = passed.from_proxies
        found.append(
            (
                passed.processor,
                passed.proxies,
                from_proxies["last bytes"] - began,
                from_proxies["last ack"] - began,
                programmed,
                from_proxies["counts"].get("bytes", 0) / lab.proxies,
                from_proxies["counts"].get("responses", 0) / lab.proxies,
            )
        )
    middle = [statistics.median(column) for column in zip(*found, strict=True)]
    print(
        f"one weight: processor {middle[0]:.3f} s (proxies {middle[1]:.2f} s); last bytes {middle[2]:.3f} s, last ACK "
        f"{middle[3]:.3f} s, Programmed=True {middle[4]:.3f} s; {middle[5]:.0f} bytes and {middle[6]:g} responses a proxy; "
        f"processor least {min(found)[0]:.3f}, most {max(found)[0]:.3f} s",
        flush=True,
    )
    return middle[0]


def reconnect(lab: Lab) -> Passed:
    """Restart the control plane; all proxies reconnect and report their resource versions."""
    lab.plane.end()
    lab.start()
    lab.begin()
    return _report("restarted control plane: all proxies reconnect", lab, time.monotonic())


def storm(lab: Lab) -> None:
    """Change many weights at a steady rate."""
    writes, seconds = STORM
    lab.begin()
    before = lab.plane.ask("usage")
    found = lab.plane.ask("storm", writes, seconds)
    passed = lab.passed()
    print(
        f"{writes} weights in {found['wall']:.1f} s: {found['processor'] / found['wall']:.0%} of a processor; last state in "
        f"force {found['after']:.2f} s after the last write; {passed.from_proxies['counts'].get('responses', 0) / lab.proxies:.0f} "
        f"responses a proxy; memory {before['memory']:.0f} MB before, {passed.plane['memory']:.0f} after, "
        f"peak {passed.plane['peak']:.0f}; {_troubles(passed)}",
        flush=True,
    )


def _report(what: str, lab: Lab, began: float) -> Passed:
    """Wait until every change is in force, and print the CPU time, the memory and the counts."""
    wall = lab.plane.ask("settled") - began
    passed = lab.passed()
    counts = passed.from_proxies["counts"]
    print(
        f"{what}: processor {passed.processor:.2f} s (proxies {passed.proxies:.2f} s), all in force after {wall:.2f} s; "
        f"a proxy got {passed.resources(lab.proxies)}, {counts.get('bytes', 0) / lab.proxies:,.0f} bytes; memory "
        f"{passed.plane['memory']:.0f} MB, peak {passed.plane['peak']:.0f}; {_troubles(passed)}",
        flush=True,
    )
    return passed


def _troubles(passed: Passed) -> str:
    counts, plane = passed.from_proxies["counts"], passed.plane
    return (
        f"{counts.get('ended', 0)} streams ended, {counts.get('lost', 0)} connections lost, {plane['overdue']:.0f} answers "
        f"overdue, {plane['nacks']:.0f} refused, the event loop was blocked for {plane['held up'] * 1000:.0f} ms at most"
    )


def run(services: int, proxies: int, scenarios: tuple[str, ...] = SCENARIOS) -> None:
    """Run all scenarios with one fleet."""
    print(f"{services} Services, {proxies} proxies", flush=True)
    with Lab(services, proxies) as lab:
        started = lab.plane.ask("usage")
        print(f"start: processor {started['processor']:.2f} s, memory {started['memory']:.0f} MB", flush=True)
        connect(lab)
        for name, scene in (("reconnect", reconnect), ("weight", weights), ("storm", storm)):
            if name in scenarios:
                scene(lab)


def grow(sizes: tuple[int, ...]) -> None:
    """Print how costs grow with the number of proxies, then with the number of Services.

    While one number takes all values of `sizes`, the other has the third value.
    """
    middle = sizes[min(2, len(sizes) - 1)]
    for services, proxies in dict.fromkeys([*((middle, size) for size in sizes), *((size, middle) for size in sizes)]):
        run(services, proxies, ("reconnect", "weight"))


async def measure() -> None:
    """Run all scenarios with a small fleet, and print how costs grow."""
    run(SERVICES, PROXIES)
    grow(GROWTH)


def main() -> None:
    """Run the scenarios that the arguments select."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=SERVICES)
    parser.add_argument("--proxies", type=int, default=PROXIES)
    parser.add_argument("--scenarios", nargs="*", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument("--growth", nargs="+", type=int, metavar="SIZE", help="measure meshes of these sizes instead")
    asked = parser.parse_args()
    if asked.growth:
        grow(tuple(asked.growth))
    else:
        run(asked.services, asked.proxies, tuple(asked.scenarios))


if __name__ == "__main__":
    main()
