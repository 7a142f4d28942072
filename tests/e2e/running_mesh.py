"""Run `headgate up` as a user does, with kubectl, Envoy's admin interface, and requests through the mesh.

A `RunningMesh` ends every process that it started: headgate by a signal, and the processes that a killed headgate left
behind. Records in the state directory contain their process IDs.
"""

import contextlib
import gc
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import pytest
import yaml
from tests.api_client import Api
from tests.fork_client import Forked
from tests.headgate_program import server
from tests.waiting import until
from tests.wire import DEADLINE_S, Address, Answer, Backend, Load, Network, Request, ask_h2, ask_once, ask_unix
from typer.testing import CliRunner

from headgate.cli.app import app

BIN = Path(sys.executable).parent
HEADGATE = str(BIN / "headgate")
KUBECTL = next((path for path in (str(BIN / "kubectl"), shutil.which("kubectl") or "") if Path(path).is_file()), "")
PAUSE_S = 0.03
"""The pause after each answer in a load. Six connections send 150 requests a second, which takes a fifth of a processor."""
LATE = re.compile(r"proxy \S+ has not answered a response for 5 s")
Via = Literal["address", "proxy"]
Line = Mapping[str, Any]


class Done(NamedTuple):
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


def headgate(*words: str, stdin: str = "") -> Done:
    """Run a command of headgate in this process, because a new process takes 0.4 s of processor time for imports.

    The command's output is not a terminal, so tables are not wrapped. Garbage collection closes its open connections.
    """
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        ended = CliRunner().invoke(
            app, words, input=stdin, prog_name="headgate", env={"COLUMNS": "60", "KUBECONFIG": None}
        )
        gc.collect()
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exc_info
    return Done(ended.exit_code, ended.stdout, ended.stderr)


def headgate_as(user: int, *words: str, stdin: str = "") -> Done:
    """Run a command of headgate in a new process, as another user."""
    with (
        tempfile.TemporaryFile("w+") as source,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        source.write(stdin)
        source.seek(0)
        process = Forked(server(), words, (source.fileno(), output.fileno(), errors.fileno()), user=user)
        code = process.wait(DEADLINE_S)
        process.close()
        for file in (output, errors):
            file.seek(0)
        return Done(code, output.read(), errors.read())


class RunningMesh:
    """A directory of manifests, a state directory, and the headgate that runs them. Use it as a context manager."""

    def __init__(self, root: Path, *options: str, manifests: Mapping[str, str] | None = None, user: int = 0) -> None:
        """Prepare the files in `root`, an empty directory; `options` are arguments of `headgate up`.

        `user` is the user and group ID that headgate runs as, for tests that run as root; 0 is the tests' own.
        """
        self.root = root
        self.directory = root / "manifests"
        self.state = root / "state"
        self.network = Network()
        self.lines: list[Line] = []
        self.options = options
        self.process: Forked | None = None
        self._line_read = threading.Condition()
        self._reader: threading.Thread | None = None
        self._barrier = 0
        self.api: Any = None  # an `Api` after the first start
        self.directory.mkdir()
        (root / "stderr").touch()
        for name, text in (manifests or {}).items():
            (self.directory / name).write_text(text)
        self.user = user or os.geteuid()
        self._as = user
        if user:
            os.chown(root, user, user)

    def __enter__(self) -> Self:
        """Start headgate and wait until it is ready."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- headgate ---

    def start(self) -> Line:
        """Start `headgate up` and wait until it is ready; return its ready line."""
        mark = self.launch()
        ready = self.line(lambda line: "ready" in line, mark, 3 * DEADLINE_S)
        self._disconnect()
        self.api = Api(Path(ready["kubeconfig"]))
        return ready

    def _disconnect(self) -> None:
        if self.api:
            self.api.close()

    def launch(self) -> int:
        """Start `headgate up` without waiting; return the index of its first output line."""
        mark = len(self.lines)
        self._release_process()
        reading, writing = os.pipe()
        with (
            Path(os.devnull).open() as nothing,
            os.fdopen(writing, "w") as output,
            (self.root / "stderr").open("ab") as errors,
        ):
            files = nothing.fileno(), output.fileno(), errors.fileno()
            words = ("up", str(self.directory), "--state", str(self.state), "-o", "json", *self.options)
            self.process = Forked(server(), words, files, user=self._as)
        self._reader = threading.Thread(target=self._read_lines, args=(self.process, reading), daemon=True)
        self._reader.start()
        return mark

    def _release_process(self) -> None:
        """Wait until the thread has read all output of an ended headgate, and close the connection to the process."""
        if self._reader and self.process:
            self._reader.join(DEADLINE_S)
            self.process.close()

    def _read_lines(self, process: Forked, file: int) -> None:
        with os.fdopen(file) as lines:
            for text in lines:
                with self._line_read:
                    self.lines.append(json.loads(text))
                    self._line_read.notify_all()
        process.wait()
        with self._line_read:
            self._line_read.notify_all()

    def line(self, wanted: Callable[[Line], object], mark: int = 0, seconds: float = DEADLINE_S) -> Line:
        """Wait for the first line of headgate's output, from index `mark` on, that `wanted` accepts; return it."""

        def found() -> Line | None:
            return next((line for line in self.lines[mark:] if wanted(line)), None)

        with self._line_read:
            self._line_read.wait_for(lambda: found() or not self.runs, seconds)
            line = found()
        assert line is not None, (
            f"headgate did not print the expected line, but {self.lines[mark:]}\nstderr: {self.stderr}\n"
            + "\n".join(f"{path}: {path.read_text()[-3000:]}" for path in self.root.rglob("envoy.log"))
        )
        return line

    @property
    def runs(self) -> bool:
        """Return whether the headgate process is alive."""
        return self.process is not None and self.process.poll() is None

    @property
    def stderr(self) -> str:
        """Return what headgate wrote to stderr."""
        return (self.root / "stderr").read_text()

    @property
    def complaints(self) -> Sequence[str]:
        """Return the lines on stderr, except those about late proxies, which every proxy of a busy machine may be."""
        return [line for line in self.stderr.splitlines() if not LATE.fullmatch(line)]

    @property
    def ready(self) -> Line:
        """Return the last ready line."""
        return next(line for line in reversed(self.lines) if "ready" in line)

    @property
    def instance(self) -> Mapping[str, Any]:
        """Return the content of `instance.json` in the state directory."""
        return dict(json.loads((self.state / "instance.json").read_bytes()))

    def stop(self) -> int:
        """End headgate and its processes as Ctrl-C does; return the exit code."""
        assert self.process
        self._disconnect()
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_S)

    def kill(self) -> None:
        """Kill headgate alone with SIGKILL, so that it can't clean up."""
        assert self.process
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)

    def processes(self) -> Mapping[str, int]:
        """Return the process IDs of live processes: the gateway's Envoy as `envoy`, containers as `POD_UID/NAME`."""
        records = {"envoy": self.state / "gateway" / "envoy.json"} | {
            f"{path.parent.parent.name}/{path.parent.name}": path for path in self.state.glob("pods/*/*/run.json")
        }
        return {name: pid for name, path in records.items() if (pid := _live_pid(path))}

    def sidecars(self) -> Mapping[str, int]:
        """Return the process IDs of live sidecars by the directory of their pod: `NAMESPACE_POD_UID`."""
        records = {path.parent.parent.name: path for path in self.state.glob("pods/*/_sidecar/envoy.json")}
        return {name: pid for name, path in records.items() if (pid := _live_pid(path))}

    def nginx(self) -> Mapping[str, int]:
        """Return the process IDs of live nginx by their Service: `NAMESPACE_NAME`."""
        records = {path.parent.name: path for path in self.state.glob("nginx/*/nginx.json")}
        return {name: pid for name, path in records.items() if (pid := _live_pid(path))}

    def close(self) -> None:
        """End all processes and connections, also after a failed test."""
        try:
            if self.runs:
                self.stop()
        finally:
            if self.runs:
                self.kill()
            self._release_process()
            self._disconnect()
            for pid in (*self.processes().values(), *self.sidecars().values(), *self.nginx().values()):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            self.network.close()

    def headgate(self, *words: str, stdin: str = "") -> Done:
        """Run a command of headgate with this mesh's state directory, as the user of the mesh."""
        words = (*words, "--state", str(self.state))
        return headgate_as(self._as, *words, stdin=stdin) if self._as else headgate(*words, stdin=stdin)

    # --- manifests ---

    def write(self, name: str, text: str | bytes) -> Line:
        """Write a manifest file and wait until it is active; return headgate's output line about it."""
        mark = len(self.lines)
        fresh = self.directory / f".{name}"  # renamed when complete: headgate would report a half-written file
        fresh.write_bytes(text if isinstance(text, bytes) else text.encode())
        fresh.replace(self.directory / name)
        return self._after_edit(mark)

    def remove(self, name: str) -> Line:
        """Delete a manifest file and wait until the deletion is active; return headgate's output line about it."""
        mark = len(self.lines)
        (self.directory / name).unlink()
        return self._after_edit(mark)

    def _after_edit(self, mark: int) -> Line:
        line = self.line(lambda line: "applied" in line or "problems" in line, mark)
        self.settle()
        return line

    # --- the API ---

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """Run kubectl and assert success; return its output."""
        done = self.try_kubectl(*words, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout

    def try_kubectl(self, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Run kubectl; return the completed process."""
        return subprocess.run(
            [KUBECTL, "--kubeconfig", self.ready["kubeconfig"], "--cache-dir", str(self.root / "cache"), *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def apply(self, *manifests: str, namespace: str = "default") -> None:
        """Apply objects and wait until they are active."""
        self.submit(*manifests, namespace=namespace)
        self.settle()

    def submit(self, *manifests: str, namespace: str = "default") -> None:
        """Apply objects without waiting."""
        for obj in yaml.load_all("\n---\n".join(manifests), yaml.CSafeLoader):
            if obj:  # a YAML document of comments alone is None
                self.api.apply(obj, namespace)

    def delete(self, what: str, namespace: str = "default") -> None:
        """Delete an object (`kind/name`) without waiting."""
        self.api.delete(what, namespace)

    def patch(self, what: str, change: Mapping[str, Any], namespace: str = "default") -> None:
        """Merge a change into an object (`kind/name`) without waiting."""
        self.api.patch(what, change, namespace)

    def roll_out(self, deployment: str, change: Mapping[str, Any], namespace: str = "default") -> None:
        """Merge a change into a Deployment, and wait until only pods of the new template run, and all are available."""
        self.patch(f"deployment/{deployment}", change, namespace)
        self.wait_for_rollout(deployment, namespace)

    def restart(self, deployment: str, namespace: str = "default") -> None:
        """Replace the pods of a Deployment as `kubectl rollout restart` does, and wait for the new ones."""
        annotations = {"kubectl.kubernetes.io/restartedAt": str(time.time())}
        self.roll_out(deployment, {"spec": {"template": {"metadata": {"annotations": annotations}}}}, namespace)

    def wait_for_rollout(self, deployment: str, namespace: str = "default") -> None:
        """Wait as `kubectl rollout status` does, whose program takes 0.2 s of processor time."""

        def is_complete() -> bool:
            obj = self.get(f"deployment/{deployment}", namespace)
            status, replicas = obj.get("status", {}), obj["spec"]["replicas"]
            counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
            return bool(status.get("observedGeneration") == obj["metadata"]["generation"] and counts == [replicas] * 3)

        until(is_complete, f"the rollout of {deployment}")

    def create_namespace(self, name: str) -> None:
        """Create a namespace, or keep an existing one."""
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def get(self, what: str, namespace: str = "default") -> Any:
        """Return an object (`kind/name`) or a list of them (`kind`) as JSON."""
        return self.api.get(what, namespace)

    def log(self, app: str, namespace: str = "default") -> Sequence[str]:
        """Return the lines that the only pod with the label `app` has logged."""
        pods = [pod["metadata"] for pod in self.get("pods", namespace)["items"]]
        (name,) = (pod["name"] for pod in pods if pod["labels"]["app"] == app)
        text: str = self.api.logs(name, namespace)
        return text.splitlines()

    def settle(self) -> None:
        """Wait until the gateway's proxy has applied every write to the API so far.

        The method changes an object that the compiler reads, and waits for its revision, which includes earlier writes.
        """
        self._barrier += 1
        grant = {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "ReferenceGrant",
            "metadata": {"name": "settle", "annotations": {"number": f"{self._barrier} {time.monotonic()}"}},
            "spec": {
                "from": [{"group": "none", "kind": "None", "namespace": "none"}],
                "to": [{"group": "", "kind": "None"}],
            },
        }
        revision = int(self.api.apply(grant)["metadata"]["resourceVersion"])
        self.line(lambda line: line.get("revision", 0) >= revision)

    def conditions(self, split: str, namespace: str = "default", **wanted: str) -> Mapping[str, tuple[str, str, str]]:
        """Wait for the conditions of a split's current generation; return status, reason and message by condition type.

        `wanted` names the status or reason that a condition must have: a status follows a change with a delay.
        """

        def current() -> Any:
            obj = self.get(f"trafficsplit/{split}", namespace)
            status = obj.get("status") or {}
            assert status.get("observedGeneration") == obj["metadata"]["generation"], status
            found = {item["type"]: (item["status"], item["reason"], item["message"]) for item in status["conditions"]}
            assert all(value in found[kind][:2] for kind, value in wanted.items()), found
            return found

        found: Mapping[str, tuple[str, str, str]] = until(current, f"{wanted} of {split}")
        return found

    def event(self, reason: str, name: str, namespace: str = "default") -> tuple[str, str, str]:
        """Wait for an Event with a reason about an object; return type, reason and message of the first one."""
        about = f"the Event {reason} about {name}"
        return until(lambda: [item for item in self.events(name, namespace) if item[1] == reason], about)[0]

    def events(self, name: str, namespace: str = "default") -> Sequence[tuple[str, str, str]]:
        """Return type, reason and message of each Event about an object, oldest first."""
        found = self.get("events", namespace)["items"]
        about = [item for item in found if item["involvedObject"]["name"] == name]
        return [(item["type"], item["reason"], item["message"]) for item in about]

    # --- traffic ---

    def backend(self, name: str) -> Backend:
        """Start an HTTP server in this process that counts requests."""
        return Backend(self.network, name)

    def address(self, service: str, port: int, namespace: str = "default") -> Address:
        """Return the address of a Service for the machine, with the port: its cluster IP, or without root that of the portal."""
        address: str = self.get(f"service/{service}", namespace)["spec"]["clusterIP"]
        if self.user and address.startswith("10."):
            address = f"127.{address.partition('.')[2]}"
        return Address(address, port)

    @property
    def proxy(self) -> Address:
        """Return the address of the HTTP proxy."""
        host, _, port = self.ready["proxy"].rpartition(":")
        return Address(host, int(port))

    def request(
        self, service: str, port: int, *, namespace: str = "default", via: Via = "address", **more: Any
    ) -> Request:
        """Return a request for a Service, to its address or through the HTTP proxy. `more` are fields of `Request`."""
        host = f"{service}.{namespace}:{port}"
        if via == "proxy":
            return Request(self.proxy, **{"target": f"http://{host}/", "host": host, **more})
        return Request(self.address(service, port, namespace), **{"host": host, **more})

    def request_by_name(self, host: str) -> Request:
        """Return the request of a browser for a host below `.localhost`."""
        port = self.ready["localhostPort"]
        return Request(Address("127.0.0.1", port), host=f"{host}:{port}")

    def ask(self, request: Request) -> Answer:
        """Send one request."""
        return self.network.run(ask_once(request))

    def send(self, count: int, request: Request, *, connections: int = 1) -> Counter[str]:
        """Send requests over some connections; return the number of answers by backend (or status, or error)."""
        return Load(self.network, [request] * connections, most=count).wait()

    def send_h2(self, count: int, address: Address, authority: str) -> Counter[str]:
        """Send requests over one HTTP/2 connection; return the number of answers by backend."""
        return self.network.run(ask_h2(address, authority, count))

    @contextlib.contextmanager
    def load(self, *requests: Request) -> Iterator[Load]:
        """Send requests continuously during the `with` block, on one connection for each of `requests`."""
        load = Load(self.network, requests, pause=PAUSE_S)
        try:
            yield load
        finally:
            load.stop()

    def envoy(self, target: str) -> bytes:
        """GET from the admin interface of the gateway's Envoy."""
        return self.network.run(ask_unix(self.instance["admin"], target))


def _live_pid(record: Path) -> int:
    """Return the recorded process ID; 0 if the process has ended, or if the ID now belongs to another process."""
    try:
        identity = json.loads(record.read_bytes())["identity"]
        fields = Path(f"/proc/{identity['pid']}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError, KeyError):
        return 0
    return identity["pid"] if int(fields[19]) == identity["started"] and fields[0] != "Z" else 0


@contextlib.contextmanager
def mesh_in_a_new_directory(*options: str, **more: Any) -> Iterator[RunningMesh]:
    """Run a mesh in a new directory that is removed at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="headgate-e2e-") as root,
        RunningMesh(Path(root), *options, **more) as mesh,
    ):
        yield mesh


def assert_healthy(mesh: RunningMesh) -> None:
    """Wait until all splits are programmed; assert that no Event is a warning or a recovery."""
    for found in mesh.get("trafficsplits")["items"]:
        mesh.conditions(found["metadata"]["name"], Programmed="True", BackendsReady="True")
        mesh.event("Programmed", found["metadata"]["name"])
    texts = [f"{item['type']} {item['reason']}: {item['message']}" for item in mesh.get("events")["items"]]
    unexpected = [text for text in texts if not text.startswith("Normal ") or "Resolved" in text]
    assert not unexpected, unexpected


def occupied(mesh: RunningMesh, namespace: str) -> socket.socket:
    """Occupy an address in the mesh's loopback range (`127.A`), so that Envoy can't listen there for a Service.

    The address is unique for each namespace: Envoy still listens on the addresses of earlier tests.
    """
    part = mesh.address("taken-range", 8080, namespace).host.rsplit(".", 2)[0]
    last = int(namespace.removeprefix("ns")) % 250 + 1
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((f"{part}.99.{last}", 8080))
    listener.listen()
    return listener


UNPRIVILEGED_UID = 65534


def missing_without_root() -> str:
    """Return why a user other than root gets no networks of pods here; empty if they do."""
    for program in ("setpriv", "unshare", "iptables-save"):
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin"):
            return f"needs {program}"
    user = () if os.geteuid() else ("setpriv", f"--reuid={UNPRIVILEGED_UID}", "--clear-groups")
    tried = [*user, "unshare", "--user", "--map-root-user", "--net", "true"]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    return f"needs user namespaces: {done.stderr.strip()}" if done.returncode else ""


def unprivileged(new_mesh: Callable[..., RunningMesh]) -> RunningMesh:
    """Start a mesh as an unprivileged user, or skip the test."""
    if os.geteuid():
        return new_mesh()
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv, to run headgate as another user than root")
    tried = subprocess.run(
        ["setpriv", f"--reuid={UNPRIVILEGED_UID}", "--clear-groups", HEADGATE, "version"], check=False
    )
    if tried.returncode:
        pytest.skip("users other than root can't read this checkout")
    return new_mesh(user=UNPRIVILEGED_UID)
