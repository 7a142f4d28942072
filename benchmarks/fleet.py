"""Measure a control plane with many proxies: connecting, a change to one weight, a restart, and a storm of changes.

    python benchmarks/fleet.py --services 1000 --proxies 1000
    python benchmarks/fleet.py --growth 250 500 1000 2000

The control plane (`fleet_plane`) and the proxies (`fleet_proxies`) are separate processes with real streams and tokens.
The mesh has transparent sidecars, ten endpoints per Service, and a split for one Service in ten. The measure is the
control plane's CPU time. On two cores the proxies use the other core, so elapsed time depends on the proxies too.
"""

import argparse
import secrets
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import fleet_plane, fleet_proxies
from benchmarks.commands import Child

QUIET_S, QUIET_PART = 0.4, 0.03  # quiet means: at most this share of a CPU for this number of seconds
SCENARIOS = ("reconnect", "weight", "storm")


class Scale(NamedTuple):
    """The numbers of Services, proxies, and weights that change one by one; a storm; and more meshes.

    The storm are a number of weights, and the seconds in which they change. `growth` has the sizes of further meshes.
    """

    services: int
    proxies: int
    weights: int = 5
    storm: tuple[int, float] = (1000, 10.0)
    growth: tuple[int, ...] = ()


USUAL = Scale(services=100, proxies=100, growth=(50, 100, 200))
SMALLEST = Scale(services=3, proxies=2, weights=1, storm=(2, 0.02))


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

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self._directory = tempfile.TemporaryDirectory(prefix="hg")
        self._secret = secrets.token_bytes(32)
        self._fleet = Child(fleet_proxies.Proxies, f"{self._directory.name}/xds.sock", self._secret)
        self._before: tuple[dict[str, float], float] = ({}, 0.0)
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._fleet.kill()
        self.plane.kill()
        self._directory.cleanup()

    def start(self) -> None:
        """Start a control plane with the mesh."""
        self.plane = Child(fleet_plane.Plane, Path(self._directory.name), self._secret)
        self._named = self.plane.call("start", self.scale.services, self.scale.proxies)

    def connect(self) -> None:
        """Connect all proxies."""
        self._fleet.call("connect", self._named, fleet_plane.node_ids(self.scale.services, self.scale.proxies))

    def begin(self) -> None:
        """Start the measurement."""
        self._before = self.plane.call("begin"), self._fleet.call("begin")

    def passed(self) -> Passed:
        """Wait until the control plane is quiet, and return the CPU time and counts since `begin`."""
        while True:
            usage = self.plane.call("usage")
            time.sleep(QUIET_S)
            if self.plane.call("usage")["processor"] - usage["processor"] < QUIET_S * QUIET_PART:
                break
        from_proxies = self._fleet.call("report")
        before, proxies = self._before
        return Passed(
            usage["processor"] - before["processor"], from_proxies["processor"] - proxies, usage, from_proxies
        )


def connect(lab: Lab) -> None:
    """Connect all proxies for the first time."""
    lab.begin()
    began = time.monotonic()
    lab.connect()
    _report("first connection of all", lab, began)


def weights(lab: Lab) -> None:
    """Change one weight a few times, and print the medians."""
    costs = []
    for weight in range(1, lab.scale.weights + 1):
        lab.begin()
        began, generation = lab.plane.call("write", 0, weight)
        programmed = lab.plane.call("programmed", 0, generation) - began
        passed = lab.passed()
        from_proxies = passed.from_proxies
        costs.append(
            (
                passed.processor,
                passed.proxies,
                from_proxies["last bytes"] - began,
                from_proxies["last ack"] - began,
                programmed,
                from_proxies["counts"].get("bytes", 0) / lab.scale.proxies,
                from_proxies["counts"].get("responses", 0) / lab.scale.proxies,
            )
        )
    middle = [statistics.median(column) for column in zip(*costs, strict=True)]
    print(
        f"one weight: processor {middle[0]:.3f} s (proxies {middle[1]:.2f} s); last bytes {middle[2]:.3f} s, last ACK "
        f"{middle[3]:.3f} s, Programmed=True {middle[4]:.3f} s; {middle[5]:.0f} bytes and {middle[6]:g} responses a proxy; "
        f"processor least {min(costs)[0]:.3f}, most {max(costs)[0]:.3f} s",
        flush=True,
    )


def reconnect(lab: Lab) -> None:
    """Restart the control plane; all proxies reconnect and report their resource versions."""
    lab.plane.kill()
    lab.start()
    lab.begin()
    _report("restarted control plane: all proxies reconnect", lab, time.monotonic())


def storm(lab: Lab) -> None:
    """Change many weights at a steady rate."""
    writes, seconds = lab.scale.storm
    lab.begin()
    before = lab.plane.call("usage")
    result = lab.plane.call("storm", writes, seconds)
    passed = lab.passed()
    print(
        f"{writes} weights in {result['wall']:.1f} s: {result['processor'] / result['wall']:.0%} of a processor; last state in "
        f"force {result['after']:.2f} s after the last write; {passed.from_proxies['counts'].get('responses', 0) / lab.scale.proxies:.0f} "
        f"responses a proxy; memory {before['memory']:.0f} MB before, {passed.plane['memory']:.0f} after, "
        f"peak {passed.plane['peak']:.0f}; {_troubles(passed)}",
        flush=True,
    )


def _report(what: str, lab: Lab, began: float) -> None:
    """Wait until every change is active, and print the CPU time, the memory and the counts."""
    wall = lab.plane.call("settled") - began
    passed = lab.passed()
    counts = passed.from_proxies["counts"]
    print(
        f"{what}: processor {passed.processor:.2f} s (proxies {passed.proxies:.2f} s), all active after {wall:.2f} s; "
        f"a proxy got {passed.resources(lab.scale.proxies)}, {counts.get('bytes', 0) / lab.scale.proxies:,.0f} bytes; memory "
        f"{passed.plane['memory']:.0f} MB, peak {passed.plane['peak']:.0f}; {_troubles(passed)}",
        flush=True,
    )


def _troubles(passed: Passed) -> str:
    counts, plane = passed.from_proxies["counts"], passed.plane
    return (
        f"{counts.get('ended', 0)} streams ended, {counts.get('lost', 0)} connections lost, {plane['overdue']:.0f} answers "
        f"overdue, {plane['nacks']:.0f} refused, the event loop was blocked for {plane['held up'] * 1000:.0f} ms at most"
    )


def run(scale: Scale, scenarios: tuple[str, ...] = SCENARIOS) -> None:
    """Run all scenarios with one fleet."""
    print(f"{scale.services} Services, {scale.proxies} proxies", flush=True)
    with Lab(scale) as lab:
        started = lab.plane.call("usage")
        print(f"start: processor {started['processor']:.2f} s, memory {started['memory']:.0f} MB", flush=True)
        connect(lab)
        for name, scene in (("reconnect", reconnect), ("weight", weights), ("storm", storm)):
            if name in scenarios:
                scene(lab)


def grow(scale: Scale) -> None:
    """Print how costs grow with the number of proxies, then with the number of Services.

    While one number takes all values of `growth`, the other has the third value.
    """
    sizes = scale.growth
    middle = sizes[min(2, len(sizes) - 1)]
    for services, proxies in dict.fromkeys([*((middle, size) for size in sizes), *((size, middle) for size in sizes)]):
        run(scale._replace(services=services, proxies=proxies), ("reconnect", "weight"))


async def measure(scale: Scale) -> None:
    """Run all scenarios with a small fleet, and print how costs grow."""
    run(scale)
    if scale.growth:
        grow(scale)


def main() -> None:
    """Run the scenarios that the arguments select."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=USUAL.services)
    parser.add_argument("--proxies", type=int, default=USUAL.proxies)
    parser.add_argument("--scenarios", nargs="*", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument("--growth", nargs="+", type=int, metavar="SIZE", help="measure meshes of these sizes instead")
    arguments = parser.parse_args()
    if arguments.growth:
        grow(USUAL._replace(growth=tuple(arguments.growth)))
    else:
        run(USUAL._replace(services=arguments.services, proxies=arguments.proxies), tuple(arguments.scenarios))


if __name__ == "__main__":
    main()
