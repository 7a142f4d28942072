"""Answers requests from the gateways of Services whose proxy is nginx: the configuration for the Service of their pod.

Such a pod has no permission in the cluster. It authenticates by its token, as a sidecar does, and gets the configuration of
the Service that headgate has written on its pod. A request waits until the configuration differs from the known one.
"""

import asyncio
import hashlib
from collections.abc import Mapping

import grpc
import msgspec
from msgspec import structs

from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.node_ids import pod_of
from headgate.latest import Latest
from headgate.model.gateway_pods import gateway_pod_port
from headgate.model.identities import PrivateText
from headgate.model.routing import Mesh
from headgate.render.nginx import configuration as nginx
from headgate.render.output import Rendered
from headgate.render.proxy_ports import Chosen, select
from headgate.resources.gateway_api.proxies import PROXY_OF_SERVICE
from headgate.resources.meta import SYSTEM_NAMESPACE, Value
from headgate.xds.authentication import StatusError
from headgate.xds.unary_methods import CheckNode, UnaryMethod

METHOD = "/headgate.v1.RenderedGateways/Configuration"
LONGEST_WAIT_S = 20.0
"""Seconds after which a request gets an answer although nothing has changed."""


class GatewayQuery(Value, frozen=True, kw_only=True):
    """The request of `METHOD`, as JSON: a node ID, the version that the pod has, and the file of nginx's stream module."""

    node: str
    known: str = ""
    stream_module: str = ""


class Configuration(Value, frozen=True, kw_only=True):
    """The response of `METHOD`, as JSON: the files by relative path, of which `main` is the first; and their version."""

    version: str
    main: str
    files: Mapping[str, str]
    omissions: tuple[str, ...] = ()


class RenderedGateways:
    """Serves `methods`. `compiled` has the mesh that is active, and `snapshot` the pods."""

    def __init__(self, compiled: Latest[Compiled | None], snapshot: Latest[Snapshot | None]) -> None:
        self._compiled = compiled
        self._snapshot = snapshot
        self._source: Compiled | None = None
        self._rendered: dict[tuple[str, str], asyncio.Future[Configuration]] = {}
        self.methods: Mapping[str, UnaryMethod] = {METHOD: self._configuration}

    async def _configuration(self, data: bytes, check_node: CheckNode) -> bytes:
        """Handle `METHOD`. Raises StatusError."""
        try:
            query = msgspec.json.decode(data, type=GatewayQuery)
        except msgspec.DecodeError as error:
            raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, f"the request is malformed: {error}") from error
        check_node(query.node)
        service = self._service(query.node)
        end = asyncio.get_running_loop().time() + LONGEST_WAIT_S
        while True:
            changed, compiled = self._compiled.next_change(), self._compiled.get()
            configuration = await self._of(compiled, service, query.stream_module) if compiled else None
            if configuration and (configuration.version != query.known or asyncio.get_running_loop().time() >= end):
                return msgspec.json.encode(configuration)
            try:
                async with asyncio.timeout_at(end):
                    await changed.wait()
            except TimeoutError:
                if not configuration:
                    message = "no mesh is compiled yet: call again"
                    raise StatusError(grpc.StatusCode.UNAVAILABLE, message) from None

    async def _of(self, compiled: Compiled, service: str, stream_module: str) -> Configuration:
        """Return the configuration for a Service; all its pods share it, and it is rendered in a thread."""
        if self._source is not compiled:
            self._source, self._rendered = compiled, {}
        key = service, stream_module
        if key not in self._rendered:
            work = asyncio.to_thread(_configuration, compiled.mesh, service, stream_module)
            self._rendered[key] = asyncio.ensure_future(work)
        return await asyncio.shield(self._rendered[key])

    def _service(self, node_id: str) -> str:
        """Return the Service (`namespace/name`) of a pod. Raises StatusError if it is not that of a gateway."""
        name, snapshot = pod_of(node_id), self._snapshot.get()
        pod = snapshot.pods.get(name) if snapshot else None
        service = pod.metadata.annotations.get(PROXY_OF_SERVICE, "") if pod else ""
        if not service or not name.startswith(f"{SYSTEM_NAMESPACE}/"):
            raise StatusError(grpc.StatusCode.NOT_FOUND, f"pod {name} belongs to no gateway of a Service")
        return service


def render_service(mesh: Mesh, service: str, stream_module: str = "") -> Rendered:
    """Return the configuration of nginx for a Service (`namespace/name`), on ports that need no privilege."""
    selection = select(mesh, Chosen([service]))
    ports = tuple(structs.replace(port, bound=gateway_pod_port(port.port)) for port in selection.ports)
    return nginx.render(structs.replace(selection, ports=ports), stream_module=stream_module)


def _configuration(mesh: Mesh, service: str, stream_module: str) -> Configuration:
    rendered = render_service(mesh, service, stream_module)
    files = {name: text.reveal() if isinstance(text, PrivateText) else text for name, text in rendered.files.items()}
    return Configuration(
        version=hashlib.sha256(msgspec.json.encode(files)).hexdigest(),
        main=rendered.main,
        files=files,
        omissions=tuple(map(str, rendered.omissions)),
    )
