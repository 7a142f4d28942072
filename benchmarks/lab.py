"""The Envoys that the benchmarks measure: configured by headgate over xDS, with a split over small backends."""

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from headgate.envoy import names, pb
from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.config import LISTENER, ProxyConfig
from headgate.envoy.encode import Memo, encode, encode_resource
from headgate.envoy.view import Node, project
from headgate.model.routing import Endpoint, Endpoints, Frontend, Mesh, PortRef, Route, RouteTable, Split, Target
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.standalone.proxies.envoy_process import EnvoyProcess
from headgate.xds.fleet import Fleet, FleetProxy
from headgate.xds.server import XdsServer

GATEWAY = Node(id="bench")
SIDECAR = Node(id="bench", role="sidecar", workload="default/client")
"""A transparent sidecar."""
START_SECONDS = 120  # enough for valgrind on a busy machine


class Gateway(NamedTuple):
    """An Envoy that headgate configures as `node`; it listens on `port`."""

    port: int
    pid: int
    fleet: Fleet
    proxy: FleetProxy
    memo: Memo
    node: Node

    def apply(self, mesh: Mesh) -> None:
        """Configure the gateway for `mesh`."""
        self.memo.begin_build()
        self.proxy.config.set(_bound(encode(project(mesh, self.node), self.memo)))


def _bound(config: ProxyConfig) -> ProxyConfig:
    """Return a configuration whose listeners bind their ports, so that a transparent sidecar works without redirection."""
    found = dict(config[LISTENER])
    for name, encoded in config[LISTENER].items():
        listener = pb.Listener.FromString(pb.Resource.FromString(encoded.body).resource.value)
        if name in (names.OUTBOUND, names.OUTBOUND6):
            del found[name]
        elif listener.address.HasField("socket_address"):
            listener.ClearField("bind_to_port")
            found[name] = encode_resource(name, listener, encoded.needs)
    return {**config, LISTENER: found}


def website(port: int, backends: Sequence[int], weights: Sequence[int]) -> Mesh:
    """Return a Service `website` on `port`, split over backends on loopback."""
    ref = PortRef("default/website", port)
    targets = [PortRef(f"default/website-v{number}", port) for number in range(len(backends))]
    shares = [(target, weight) for target, weight in zip(targets, weights, strict=True) if weight]
    split = Split(targets=tuple(Target(ref=target, weight=weight) for target, weight in shares))
    return Mesh(
        domain="cluster.local",
        frontends=(Frontend(service=ref.service, address="127.0.0.1", ports=(port,)),),
        tables=(RouteTable(ref=ref, routes=(Route(split=split),)),),
        endpoints=tuple(
            Endpoints(ref=target, ready=(Endpoint(address="127.0.0.1", port=backend, workload=f"{target.service}-0"),))
            for target, backend in zip(targets, backends, strict=True)
        ),
    )


async def start_gateway(stack: AsyncExitStack, directory: Path, mesh: Mesh, node: Node = GATEWAY) -> Gateway:
    """Start an xDS server and an Envoy that it configures as `node`; `stack` stops both."""
    fleet, memo = Fleet(), Memo()
    proxy = fleet.expect(node.id)
    proxy.config.set(_bound(encode(project(mesh, node), memo)))
    server = XdsServer(fleet)
    await server.start(f"unix:{directory}/xds.sock")
    stack.push_async_callback(server.stop)
    content = bootstrap(node_id=node.id, xds_socket=f"{directory}/xds.sock", admin_socket=f"{directory}/gateway.sock")
    pid = await start_envoy(stack, directory / "gateway", content)
    return Gateway(mesh.frontends[0].ports[0], pid, fleet, proxy, memo, node)


async def start_envoy(stack: AsyncExitStack, directory: Path, content: bytes, binary: Path | None = None) -> int:
    """Start an Envoy; return its PID when it is ready. Its admin socket must be at `directory` plus `.sock`."""
    binary = binary or find_envoy(os.environ)
    envoy = EnvoyProcess(binary, content, directory=directory, admin=directory.with_suffix(".sock"))
    await envoy.start()
    stack.push_async_callback(envoy.stop)
    await envoy.ready(START_SECONDS)
    return envoy.state.get().pid
