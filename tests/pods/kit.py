"""The programs that start a real Kubernetes cluster on this machine, and the processes of a test run that share it.

HEADGATE_TEST_CLUSTER names a directory with the programs `up`, `down`, `env` and `build-image`, which start a cluster, end it,
print its environment, and load an image into it. One cluster runs at a time.
"""

import compileall
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import headgate

IMAGE = "localhost/headgate:test"
SECOND_IMAGE = "localhost/headgate:second"
"""Has headgate too, and in addition nginx, if this machine has it, and the program of `traffic_pod`."""
BIN = Path(sys.executable).parent
TESTS = Path(__file__).parent.parent
VOLUME_SYNC_S = 20
"""Seconds that a rotation waits for the volumes of pods. The kubelet of this cluster syncs each pod after 10 to 15 seconds."""
PODS_SHARES = Path("/sys/fs/cgroup/cpu/kubepods/cpu.shares")
START_S = 240
_MACHINE = "headgate-test-cluster.lock"
_UP, _STARTED, _FAILED = "up", "started", "failed"


class CannotStart(Exception):
    """No cluster can be started here; the message says why."""


class Sharing:
    """The cluster of a test run, which several processes of the run use, each with an object of this class.

    A process uses the cluster alone, or beside the other ones. The last process that leaves the cluster ends it; other runs on
    this machine wait for that. All processes of the run have the same `directory`.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._marks = directory, directory / "done"
        self._marks.mkdir(exist_ok=True)
        # Shared by all processes that use the cluster.
        self._members = os.open(directory / "members.lock", os.O_RDWR | os.O_CREAT)
        # Shared, or held by a module that needs the cluster alone.
        self._modules = os.open(directory / "modules.lock", os.O_RDWR | os.O_CREAT)
        self._mode = fcntl.LOCK_UN

    def use(self, *, alone: bool) -> None:
        """Wait until the modules of the other processes allow this use; start the cluster if it does not run. Raises CannotStart."""
        fcntl.flock(self._members, fcntl.LOCK_SH)
        mode = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        if mode != self._mode:
            self._mode = fcntl.LOCK_UN  # an interrupted request has given up the lock
            fcntl.flock(self._modules, mode)
            self._mode = mode
        self.once(_STARTED, self._start)

    def once(self, name: str, action: Callable[[], object]) -> None:
        """Do an action with the cluster, unless a process has done it since the last `forget`."""
        mark = self._marks / name
        with (self._directory / "once.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not mark.exists():
                action()
                mark.touch()

    def forget(self, name: str) -> None:
        """Let the next `once` do an action again."""
        (self._marks / name).unlink(missing_ok=True)

    def leave(self) -> None:
        """Let modules of other processes have the cluster alone. End it if no other process uses it."""
        fcntl.flock(self._modules, fcntl.LOCK_UN)
        self._mode = fcntl.LOCK_UN
        with contextlib.suppress(BlockingIOError):
            # A request that fails also gives up the shared lock: of processes that leave at once, the last one gets the lock.
            fcntl.flock(self._members, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_up():
                _down()
                for mark in self._marks.iterdir():
                    mark.unlink()
        fcntl.flock(self._members, fcntl.LOCK_UN)

    def _is_up(self) -> bool:
        return (self._marks / _UP).exists()

    def _start(self) -> None:
        failed = self._directory / _FAILED
        if failed.exists():  # the other modules don't try again
            raise CannotStart(failed.read_text())
        try:
            _check()
            if not self._is_up():
                if not (self._directory / _MACHINE).exists():
                    # Held until this process ends: it may leave the cluster earlier than other processes of the run.
                    fcntl.flock(os.open(_lock_file(_MACHINE), os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
                    (self._directory / _MACHINE).touch()
                _up()
                (self._marks / _UP).touch()  # the last process ends it, also if there is no image
            build_second_image()
        except CannotStart as error:
            failed.write_text(str(error))
            raise


@contextlib.contextmanager
def started() -> Iterator[dict[str, str]]:
    """Start a cluster, and load headgate's image into it, for the `with` block; yield its environment. Raises CannotStart."""
    _check()
    with _locked(_MACHINE):
        _up()
        try:
            yield environment()
        finally:
            _down()


def environment() -> dict[str, str]:
    """Return the environment of programs that use the cluster."""
    exports = _run(_kit() / "env")  # lines such as `export KUBECONFIG=/path`
    shell = subprocess.run(["bash", "-c", f"{exports}\nenv -0"], capture_output=True, text=True, check=True).stdout
    return dict(line.partition("=")[::2] for line in shell.split("\0") if line)


def environment_options() -> Sequence[object]:
    """Return options of `build_image` that add headgate.

    Of an editable installation, `build-image` leaves out compiled modules. With them, a replica of the control plane starts in
    0.7 s of processor time instead of 1.3 s.
    """
    package = Path(headgate.__file__).parent
    compileall.compile_dir(package, quiet=1)
    place = f"/opt/headgate/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/headgate"
    compiled = sorted(package.rglob(f"*.{sys.implementation.cache_tag}.pyc"))
    added = [word for file in compiled for word in ("--add", f"{file}:{place}/{file.relative_to(package)}")]
    return ("--venv", BIN.parent, "--dist", "headgate", *added)


def build_image(tag: str, *options: object) -> None:
    """Make an image with Python, and with what the options of `build-image` add, available to the cluster's nodes.

    containerd can remove a layer as garbage while it imports a second image that has this layer. Then it lacks the layer,
    and the next import brings it.
    """
    command = (_kit() / "build-image", tag, *options)
    with _locked("headgate-test-images.lock"):
        if reason := _failure(*command):
            assert "not found" in reason, f"{command}:\n{reason}"
            _run(*command)


def node_exec(*command: str) -> list[str]:
    """Return a command that runs another command in the network namespace of the node."""
    return [str(_kit() / "node-exec"), *command]


def _check() -> None:
    """Raise CannotStart if this machine lacks what starts a cluster."""
    if not (_kit() / "up").is_file():
        raise CannotStart("HEADGATE_TEST_CLUSTER names no directory with programs that start a Kubernetes cluster")
    if os.geteuid() != 0:
        raise CannotStart("only root can start a Kubernetes cluster")


def _up() -> None:
    """Start a cluster, and load headgate's image into it. Raises CannotStart."""
    if reason := _failure(_kit() / "up"):
        raise CannotStart(f"no Kubernetes cluster can be started here: {reason}")
    try:
        sync = f"HEADGATE_VOLUME_SYNC={VOLUME_SYNC_S}s"
        build_image(IMAGE, *environment_options(), "--env", sync)
        _weigh_pods()
    except AssertionError as error:
        _down()
        raise CannotStart(f"no image can be built here: {error}") from error
    except BaseException:
        _down()
        raise


def _down() -> None:
    _run(_kit() / "down")


def build_second_image() -> None:
    """Make SECOND_IMAGE available to the cluster's nodes."""
    sources = "e2e", "protocols.py", "wire.py", "pods/traffic_pod.py"
    added = [word for source in sources for word in ("--add", f"{TESTS}/{source}:/opt/tests/tests/{source}")]
    nginx = shutil.which("nginx")
    programs = _added_files(nginx) if nginx else []
    build_image(SECOND_IMAGE, *environment_options(), *added, *programs, "--env", "PYTHONPATH=/opt/tests")


def _added_files(program: str) -> list[str]:
    """Return options of `build_image` that add a program and its libraries."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    paths = [program, *(word for word in listed.split() if word.startswith("/"))]
    return [option for path in paths for option in ("--add", f"{Path(path).resolve()}:{path}")]


def _weigh_pods() -> None:
    """Let the pods together weigh as much as 16 programs of the cluster, where the kubelet has given them a control group.

    By default they weigh as much as one process for each processor: beside 60 processes, 26 pods did not start within 2 minutes.
    The cluster's programs have the niceness of this process. Each step divides a process's weight by 1.25.
    """
    if PODS_SHARES.exists():
        PODS_SHARES.write_text(str(round(16 * 1024 / 1.25 ** os.nice(0))))


def _lock_file(name: str) -> Path:
    return Path(tempfile.gettempdir(), name)


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    """Exclude other processes on this machine that have a lock with the same name."""
    with _lock_file(name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _kit() -> Path:
    return Path(os.environ.get("HEADGATE_TEST_CLUSTER", "missing"))


def _failure(*command: object) -> str:
    """Run a program; return the end of its error output if it fails, else an empty string."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=START_S, check=False)
    except subprocess.TimeoutExpired:
        return f"{words[0]} has not ended after {START_S} s"
    return (done.stderr[-500:] or f"exit code {done.returncode}") if done.returncode else ""


def _run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stderr}"
    return done.stdout
