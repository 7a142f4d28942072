"""A mesh of pods in network namespaces: real redirection, real Envoys as a separate user, and the real xDS server.

The control plane runs in the test's process. Proxies reach it by a unix socket, which belongs to no network
namespace.
"""

import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, TypeVar

from tests.make.objects import Object
from tests.make.objects import pod as a_pod
from tests.netns.namespaces import PROXY, Bridge, Capture, PodNamespace
from tests.netns.traffic import Application
from tests.wire import Network

from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.envoy.bootstrap import bootstrap, token_source
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import project, sidecar
from headgate.errors import ProxyError
from headgate.identity.authority import Authority, make_signer, new_root, sign
from headgate.identity.issuers import LIFETIME, CertificateSpec
from headgate.latest import until
from headgate.model.identities import Credential
from headgate.model.routing import Workload
from headgate.plane.feed import snapshot_of
from headgate.resources.core.pod_metadata import EXCLUDED_PORTS, PROBES, SIDECAR
from headgate.resources.registry import key_of
from headgate.settings import Settings
from headgate.standalone.proxies.admin import Admin
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.xds.authentication import LocalTokens
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer
from headgate.xds.unary_methods import UnaryMethod

HEADGATE = Path(sys.executable).parent / "headgate"
SETTLED_S = 60
SHOWN = 4000
T = TypeVar("T")
Kind: TypeAlias = Literal["echo", "greet", "web"]
"""A method of Application, which serves connections."""


def tls_of(root: Authority, identity: str) -> ssl.SSLContext:
    """Return a client's TLS context with an identity of an authority; it does not verify the server."""
    leaf = sign(make_signer(root, "the lab"), CertificateSpec(identity=identity), time.time(), LIFETIME)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["headgate"])
    with tempfile.NamedTemporaryFile() as file:
        file.write(leaf.key.reveal().encode() + leaf.chain.encode())
        file.flush()
        context.load_cert_chain(file.name)
    return context


def pod_with_sidecar(
    name: str, address: str, *, account: str, excluded: str = "", probe: tuple[int, str] | None = None
) -> Object:
    """Return a running pod with a transparent sidecar, which declares no port (D26).

    `probe` is the (port, path) of its readiness probe. Then the pod has two TCP probes too: the liveness
    probe of the same port, and the startup probe of the port 7999, on which nothing listens.
    """
    annotations = {SIDECAR: "transparent"} | ({EXCLUDED_PORTS: excluded} if excluded else {})
    if probe:
        checks = {
            "app/readinessProbe": {"httpGet": {"port": probe[0], "path": probe[1]}},
            "app/livenessProbe": {"tcpSocket": {"port": probe[0]}, "periodSeconds": 1},
            "app/startupProbe": {"tcpSocket": {"port": 7999}, "periodSeconds": 1},
        }
        annotations[PROBES] = json.dumps(checks)
    return a_pod(name, address, account=account, labels={"app": name}, annotations=annotations)


class MeshPod:
    """A pod: its network namespace, its applications, and the proxy if the pod has a sidecar."""

    def __init__(self, name: str, space: PodNamespace, manifest: Object, directory: Path) -> None:
        self.name = name
        self.space = space
        self.address: str = manifest["status"]["podIP"]
        self.manifest = manifest
        self.directory = directory
        self.envoy: subprocess.Popen[bytes] | None = None
        self.apps: dict[int, Application] = {}

    def open_socket(self, family: socket.AddressFamily) -> socket.socket:
        """Return a socket of the pod."""
        return self.space.open_socket(family)

    def listening(self, port: int, address: str = "0.0.0.0") -> socket.socket:
        """Return a listening socket of the pod."""
        return self.space.listening(port, address)

    def capture(self) -> Capture:
        """Return a capture of the traffic between the pod and the bridge."""
        return self.space.capture()

    def end_proxy(self) -> None:
        """Kill the proxy, if there is one."""
        if self.envoy:
            self.envoy.kill()
            self.envoy.wait()

    @property
    def admin(self) -> Admin:
        """Return the admin interface of the proxy."""
        return Admin(self.directory / "admin")

    async def replaced_listeners(self) -> Mapping[str, int]:
        """Return the numbers of listeners and filter chains that begin or end."""
        filtered = "/stats?format=json&filter=listener_manager.total_.*_(draining|warming)"
        page = await self.admin.get_json(filtered)
        return {gauge["name"]: gauge["value"] for gauge in page["stats"]}

    def log(self) -> str:
        """Return the end of the proxy's log."""
        return (self.directory / "envoy.log").read_text(errors="replace")[-SHOWN:]


class NamespacedMesh:
    """A mesh as a context manager: call `pod` for each pod, then `start`, then `serve` for each change to objects."""

    compiled: Compiled

    def __init__(self) -> None:
        self.network = Network()
        self.bridge = Bridge()
        self.members: dict[str, MeshPod] = {}
        self._memo = Memo()
        self._fleet = Fleet()
        self._directory = Path(tempfile.mkdtemp(prefix="hgn"))
        self._root = new_root("cluster.local", time.time())
        self._roots = self._root.certificate
        self._credentials: dict[CertificateSpec, Credential] = {}
        self._tokens = LocalTokens(os.urandom(32))
        self._server = XdsServer(self._fleet, self._tokens)
        os.chown(self._directory, PROXY, PROXY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members.values():
            member.end_proxy()
        self.run(self._end())
        self.network.close()
        self.bridge.close()
        shutil.rmtree(self._directory)

    async def _end(self) -> None:
        for member in self.members.values():
            for app in member.apps.values():
                await app.close()
        await self._server.stop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop of the mesh."""
        return self.network.run(work)

    # --- building

    def pod(
        self,
        name: str,
        *,
        account: str,
        sidecar: bool = True,
        excluded: str = "",
        probe: tuple[int, str] | None = None,
        ipv6: bool = False,
    ) -> MeshPod:
        """Add a pod; its label `app` is its name. With `ipv6`, its pod IP is its IPv6 address."""
        space = self.bridge.pod()
        address = space.address6 if ipv6 else space.address
        manifest = (
            pod_with_sidecar(name, address, account=account, excluded=excluded, probe=probe)
            if sidecar
            else a_pod(name, address, account=account, labels={"app": name})
        )
        member = self.members[name] = MeshPod(name, space, manifest, self._new_directory(name))
        if sidecar:
            space.run(HEADGATE, "redirect", "apply", f"--excluded-inbound-ports={excluded}")
            self._fleet.expect(f"sidecar/default/{name}")
        return member

    def join(self, manifest: Object) -> MeshPod:
        """Add a pod with a sidecar by its manifest, without an address. The caller redirects its connections and runs its proxy."""
        name, space = manifest["metadata"]["name"], self.bridge.pod()
        running = {**manifest, "status": a_pod(name, space.address)["status"]}
        member = self.members[name] = MeshPod(name, space, running, self._new_directory(name))
        self._fleet.expect(f"sidecar/default/{name}")
        self._tokens.write(f"sidecar/default/{name}", member.directory / "token")
        return member

    def leave(self, member: MeshPod) -> None:
        """Remove a pod that joined, and end its proxy."""
        del self.members[member.name]
        self._fleet.remove(f"sidecar/default/{member.name}")
        member.end_proxy()
        for app in member.apps.values():
            self.run(app.close())

    def _new_directory(self, name: str) -> Path:
        directory = self._directory / name
        directory.mkdir(mode=0o700)
        os.chown(directory, PROXY, PROXY)
        return directory

    def server_over_tls(self, methods: Mapping[str, UnaryMethod]) -> XdsServer:
        """Return an xDS server for the proxies of this mesh, which the caller starts on a port, as on a cluster."""
        return XdsServer(self._fleet, self._tokens, unary_methods=methods)

    def listen(self, member: MeshPod, port: int, kind: Kind, tls: ssl.SSLContext | None = None) -> Application:
        """Make a pod listen."""
        app = member.apps[port] = Application(member.name)
        address = "::" if ":" in member.address else "0.0.0.0"
        return self.run(app.listen(member.listening(port, address), getattr(app, kind), tls))

    def start(self) -> None:
        """Start the xDS server and all proxies."""
        path = self._directory / "xds"
        self.run(self._server.start(f"unix:{path}"))
        os.chown(path, PROXY, PROXY)
        self.serve(settle=False)
        proxied = [
            member for member in self.members.values() if f"sidecar/default/{member.name}" in self._fleet.proxies
        ]
        for member in proxied:
            self._launch(member, path)
        self.run(self._settle())
        self.run(asyncio.wait_for(self._ready(proxied), SETTLED_S))

    def _launch(self, member: MeshPod, xds: Path) -> None:
        node, token, source = (
            f"sidecar/default/{member.name}",
            member.directory / "token",
            member.directory / "token.json",
        )
        self._tokens.write(node, token)
        source.write_bytes(token_source(str(token)))
        content = bootstrap(
            node_id=node, xds_socket=str(xds), admin_socket=str(member.directory / "admin"), token=str(source)
        )
        (member.directory / "bootstrap.json").write_bytes(content)
        for path in member.directory.iterdir():
            os.chown(path, PROXY, PROXY)
        # Envoy is started through a file descriptor, because the proxy's user may not have access to the path.
        binary = os.open(find_envoy(os.environ), os.O_RDONLY)
        command: list[str | Path] = [
            *("setpriv", f"--reuid={PROXY}", f"--regid={PROXY}", "--clear-groups", "--pdeathsig=KILL"),
            *(f"/proc/self/fd/{binary}", "-c", member.directory / "bootstrap.json"),
            *("--disable-hot-restart", "--concurrency", "1", "-l", "warning"),
            *("--drain-time-s", "1", "--drain-strategy", "immediate"),
        ]
        with (member.directory / "envoy.log").open("wb") as log:
            member.envoy = subprocess.Popen(
                member.space.command(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[binary]
            )
        os.close(binary)

    async def _ready(self, members: Iterable[MeshPod]) -> None:
        for member in members:
            while not await self._is_ready(member):
                assert member.envoy
                assert member.envoy.poll() is None, f"the proxy of {member.name} ended:\n{member.log()}"
                await asyncio.sleep(0.02)  # there is no event to wait for

    async def _is_ready(self, member: MeshPod) -> bool:
        try:
            await member.admin.get("/ready")
        except ProxyError:
            return False
        return True

    # --- serving

    def serve(self, *objects: Object, settings: Settings | None = None, settle: bool = True) -> Compiled:
        """Serve objects and the pods; return the compiled result when all proxies have acknowledged it."""
        given = [*(member.manifest for member in self.members.values()), *objects]
        snapshot = snapshot_of({key_of(written): written for written in given})
        assert not snapshot.mistakes
        self.compiled = compile_mesh(snapshot, settings or Settings())
        self.run(self._offer())
        if settle:
            self.run(self._settle())
        return self.compiled

    async def _offer(self) -> None:
        self._memo.begin_build()
        for workload in self.compiled.mesh.workloads:
            view = project(self.compiled.mesh, sidecar(workload), self._credential(workload))
            self._fleet.proxies[view.node.id].config.set(encode(view, self._memo))

    def _credential(self, workload: Workload) -> Credential:
        wanted = CertificateSpec(identity=workload.identity, subjects=workload.subjects)
        if wanted not in self._credentials:
            leaf = sign(make_signer(self._root, "the lab"), wanted, time.time(), LIFETIME)
            self._credentials[wanted] = Credential(chain=leaf.chain, key=leaf.key, roots=self._roots)
        return self._credentials[wanted]

    def renew(self) -> None:
        """Replace the root, which signs new certificates of all proxies; they also trust the old one."""
        old, self._root = self._root, new_root("cluster.local", time.time())
        self._roots = f"{self._root.certificate}{old.certificate}"
        self._credentials.clear()

    def tls_of(self, identity: str) -> ssl.SSLContext:
        """Return the TLS context of a client with an identity of the mesh; it does not verify the server."""
        return tls_of(self._root, identity)

    async def drained(self) -> None:
        """Wait until every sidecar has only its newest listeners, and has ended the connections of earlier ones."""
        async with asyncio.timeout(SETTLED_S):
            for member in self.members.values():
                while member.envoy and any((await member.replaced_listeners()).values()):
                    await asyncio.sleep(0.02)  # there is no event to wait for

    async def _settle(self) -> None:
        proxies = self._fleet.proxies.values()
        try:
            async with asyncio.timeout(SETTLED_S):
                await until(lambda: all(proxy.settled() for proxy in proxies), self._fleet.change_count)
        except TimeoutError:
            late = [proxy.id for proxy in proxies if not proxy.settled()]
            logs = "\n".join(member.log() for member in self.members.values() if member.envoy)
            raise AssertionError(f"{late} have not acknowledged their configuration:\n{logs}") from None
        refused = [rejection for proxy in proxies for rejection in proxy.rejections()]
        assert not refused, f"rejected resources: {refused}"
