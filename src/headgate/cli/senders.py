"""Which proxy sends the requests of `headgate try`: the gateway, or the sidecar of a workload with its identity."""

from pathlib import Path
from typing import NamedTuple

from headgate.cli.inspection import Inspection
from headgate.cli.instance import instance
from headgate.compiler.requests import Client
from headgate.errors import HeadgateError, NotFound
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.resources.inspect import Proxy


class Sender(NamedTuple):
    """A proxy's socket for requests, and who sends by it: in words, and the namespace in which short names are looked up."""

    socket: Path
    name: str = "the gateway"
    identity: str = ""
    home: str = DEFAULT_NAMESPACE


def gateway(state: Path | None) -> Sender:
    """Return the gateway of this machine. Raises Unavailable when no headgate runs here."""
    return Sender(Path(instance(state).probe))


async def sidecar(inspection: Inspection, client: Client) -> Sender:
    """Return the sidecar of a pod that a client stands for. Raises NotFound, HeadgateError."""
    every = [item for item in await inspection.proxies(client.namespace) if _is(item, client)]
    if not every:
        raise NotFound(
            f"no pod of {client.kind} {client.namespace}/{client.name} has a sidecar, so nothing can be sent as it; name its"
            " namespace with --namespace, or leave out --from to send by the gateway"
        )
    chosen = next((item for item in every if _can_send(item)), None)
    if chosen is None:
        told = "; ".join(f"{item.metadata.name}: {item.status.message or 'it runs elsewhere'}" for item in every)
        raise HeadgateError(
            f"no sidecar of {client.kind} {client.namespace}/{client.name} can send from this machine: {told}"
        )
    return _of(chosen)


def _is(item: Proxy, client: Client) -> bool:
    names = {
        "pod": item.metadata.name,
        "deployment": item.deployment,
        "serviceaccount": item.service_account,
    }
    return names[client.kind] == client.name


def _can_send(item: Proxy) -> bool:
    process = item.status.process
    return bool(process and process.pid and Path(process.probe).exists())


def _of(item: Proxy) -> Sender:
    process, certificate = item.status.process, item.status.certificate
    return Sender(
        socket=Path(process.probe if process else ""),
        name=f"Pod {item.metadata.namespace}/{item.metadata.name}",
        identity=certificate.identity if certificate else "",
        home=item.metadata.namespace,
    )
