"""Settings of all tests: an option to write golden files, the order of slow tests, and cleanup after the run."""

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from tests import perturbation, selection
from tests.processes import without_shims
from xdist.scheduler import LoadFileScheduling

from headgate.standalone.proxies import admin
from headgate.standalone.runtime_directory import remove_unused

pytest_plugins = ["tests.embedded_api"]  # fixtures of the embedded API

RUN = "HEADGATE_TESTS"
os.environ.setdefault(RUN, str(os.getpid()))  # marks all processes that this run starts, workers included
PATIENCE_S = 20.0
PODS = "tests/pods"
TOGETHER = (PODS, "tests/cluster")
"""Directories whose modules share a cluster or an API server: one process runs all their tests, one after the other.

Each API server needs a processor for half a minute to start. Four that start at once can be so slow that a replica of the
control plane loses its Lease.
"""
BESIDE = tuple(
    f"{PODS}/test_{name}.py"
    for name in ("applications", "examples", "gateways", "jobs", "probes", "split", "stateful_sets")
)
"""Modules with pods that a second process runs: half of those that use `shared_cluster`, by their time."""
SLOW = (  # files and directories that run first, in this order; all other files are faster
    PODS,
    "tests/standalone/apiserver/test_kubectl.py",
    "tests/docs",
    "tests/cluster",
    "tests/chaos",
    "tests/properties",
    "tests/differential",
    "tests/e2e",
    "tests/envoy",
    "tests/netns",
    "tests/cli",
    "tests/standalone",
    "tests/cli/traffic",
    "tests/xds",
    "tests/compiler",
    "tests/golden",
)

admin.TIMEOUT_S = 60.0  # a busy machine may need longer for an answer of Envoy's admin interface than 5 s

gc.disable()  # until the tests are collected: collecting creates objects that live as long as the process

# Programs in Go collect garbage seldom: kubectl and Helm take a fifth less processor time, and API servers too.
os.environ.setdefault("GOGC", "800")
os.environ["PATH"] = without_shims(os.environ["PATH"])
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling takes 0.6 s per start
sys.dont_write_bytecode = False

DERANDOMIZE = not {"FUZZ_SECONDS", "FUZZ_WORLDS"} & os.environ.keys()  # the same examples in each run
settings.register_profile(
    "headgate",
    deadline=None,
    derandomize=DERANDOMIZE,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headgate")

# Hypothesis would also draw the constants of all imported modules: an edit of any module, and the files that a process runs,
# would change the examples. Reading the constants takes 5 s in each process of a clean checkout. No setting turns it off.
if DERANDOMIZE:
    assert hasattr(providers, "_get_local_constants"), "this Hypothesis reads the constants in another way"
    providers._get_local_constants = lambda: providers._local_constants

# A shell ignores these signals for background jobs. Child processes inherit this, so the signals would not stop them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files; review the diff afterwards")
    parser.addoption("--fast", action="store_true", help="run only tests that start no program (tests/selection.py)")
    parser.addoption("--nightly", action="store_true", help="run only tests with the marker nightly")
    parser.addoption(
        "--hold-ms",
        type=perturbation.milliseconds,
        help="hold sockets, timers and threads back by up to this time, to show races",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make each start of a program by a fast test an error."""
    selection.guard()
    if longest := config.getoption("--hold-ms"):
        os.environ[perturbation.VARIABLE] = str(longest)
        perturbation.perturb(longest / 1000)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out directories without fast tests."""
    fast = config.getoption("--fast")
    return True if fast and str(collection_path.relative_to(config.rootpath)) in selection.DIRECTORIES else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Name the running test to the guard of fast tests."""
    selection.watch(item.nodeid)
    result = yield
    selection.watch("")
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Let fixtures of several tests end their programs after a fast test."""
    selection.watch("")


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers for `-n auto`: three more than CPUs, because tests wait more than they compute.

    Two workers mostly wait for pods. With four workers on two CPUs, 9 % of the processor time of a run stayed unused.
    """
    return (os.cpu_count() or 1) + 3


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives the tests of a file to one worker, and those of modules that share a cluster or an API server."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        if scope in BESIDE:
            return f"beside {PODS}"
        return next((directory for directory in TOGETHER if scope.startswith(f"{directory}/")), scope)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """Return the scheduler of `--dist loadfile`."""
    return Scheduling(config, log) if config.option.dist == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run slow files first: a slow file at the end would keep one worker busy while the remaining ones are idle.

    Modules that leave the shared cluster as it is run first, those that need it without headgate last. The tests of a directory
    follow each other, so that the API server that they share ends before that of another directory starts.
    """
    selection.select(config, items)
    items.sort(key=lambda item: (_rank(item.nodeid.partition("::")[0]), _use_of_cluster(item), str(item.path.parent)))


def _use_of_cluster(item: pytest.Item) -> int:
    fixtures = getattr(item, "fixturenames", ())
    names = ("shared_cluster", "disturbed", "", "empty_cluster")
    return next((rank for rank, name in enumerate(names) if name in fixtures), 2)


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection, because they live as long as the process.

    Their garbage stays too: it takes 20 MB, and half a second of processor time to collect.
    """
    gc.freeze()
    gc.enable()


@lru_cache
def _rank(file: str) -> int:
    return next((rank for rank, place in enumerate(SLOW) if f"{file}/".startswith(f"{place}/")), len(SLOW))


@pytest.hookimpl(trylast=True)  # runs after the workers have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End processes that outlived their tests, for example of killed workers, and remove their runtime directories."""
    if session.config.getoption("--nightly") and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # no test is nightly now
    if os.environ[RUN] == str(os.getpid()):
        for number, seconds in ((signal.SIGTERM, PATIENCE_S), (signal.SIGKILL, 1)):
            deadline = time.monotonic() + seconds
            for pid in _left():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            while _left() and time.monotonic() < deadline:
                time.sleep(0.1)
    remove_unused(os.environ)


def _left() -> list[int]:
    """Return the IDs of other processes with this run's mark: headgates and proxies. A headgate ends its pods."""
    mark, found = f"{RUN}={os.environ[RUN]}".encode(), []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdecimal() and mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return [pid for pid in found if pid != os.getpid()]
