"""The proxy that sends the requests of `headgate try`: one on this machine, or the sidecar of a pod on a cluster."""

import contextlib
import ipaddress
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import structs

from headgate.admission.injection import TRANSPARENT
from headgate.admission.sidecar_containers import CONTAINER
from headgate.cli.connection import find_runtime_info
from headgate.cli.inspect_client import InspectClient
from headgate.cli.probe import Batch, ProbeProgress, RequestBatch, Tally
from headgate.cli.try_target import TryPort
from headgate.envoy.routes import ORIGINAL_ADDRESS
from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client, path_of
from headgate.kubernetes.pod_programs import PodContainer, ProgramFailed, run_program
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.resources.core.pod_metadata import sidecar_mode
from headgate.resources.inspect import Proxy
from headgate.resources.registry import POD
from headgate.resources.request_spec import RequestOrigin as Caller

PROGRAM = ("headgate", "sidecar", "try")
"""The program in a sidecar's container that sends a batch of requests."""
_USAGE_ERROR = 2  # the exit code of a sidecar whose image has no such program


class Sender(NamedTuple):
    """The proxy that sends the requests: its name and identity, and the namespace of short Service names.

    A proxy on this machine has the path of its probe socket, and a sidecar on a cluster the name of its `pod`.
    `by_address`: the proxy selects routes by the address of the Service, as transparent sidecars do.
    """

    socket: Path | None = None
    name: str = "the gateway"
    identity: str = ""
    namespace: str = DEFAULT_NAMESPACE
    pod: str = ""
    by_address: bool = False


async def local_gateway(client: Client, state: Path | None) -> Sender | None:
    """Return the gateway of a state directory if its headgate serves the client's API, else None."""
    info = find_runtime_info(state)
    if info is None or await client.server() != info.api:
        return None
    return Sender(Path(info.probe))


async def sidecar(inspect_client: InspectClient, caller: Caller) -> Sender:
    """Return a sidecar of the caller's pods. Raises NotFound without a sidecar, HeadgateError if none can send requests."""
    proxies = await inspect_client.proxies(caller.namespace)
    every = [proxy for proxy in proxies if _belongs(proxy, caller)]
    about = f"{caller.kind} {caller.namespace}/{caller.name}"
    if not every:
        raise NotFound(
            f"found no sidecar of {about}, so no request can be sent from it; give its namespace with -n, or omit"
            " --from"
        )
    return await _with_mode(inspect_client.client, _first_usable(every, about))


async def _with_mode(client: Client, sender: Sender) -> Sender:
    """Return a sidecar with its mode. On this machine it is transparent with `--network pod`, except for pods with hostNetwork."""
    if not sender.socket:
        return sender
    pod = await client.get(path_of(POD, sender.namespace, sender.name.rpartition("/")[2]))
    return sender._replace(by_address=sidecar_mode(pod) == TRANSPARENT)


async def any_sidecar(inspect_client: InspectClient, namespace: str) -> Sender:
    """Return a sidecar of any pod of a namespace. Raises NotFound without a sidecar, HeadgateError if none can send requests."""
    every = await inspect_client.proxies(namespace)
    if not every:
        raise NotFound(
            f"no pod of the namespace {namespace} has a sidecar that can send the requests; name a client of another"
            " namespace by --from KIND/NAME -n NAME"
        )
    return await _with_mode(inspect_client.client, _first_usable(every, f"the namespace {namespace}"))


def _first_usable(proxies: Sequence[Proxy], about: str) -> Sender:
    for proxy in sorted(proxies, key=lambda proxy: proxy.metadata.name):
        process, certificate = proxy.status.process, proxy.status.certificate
        sender = Sender(
            name=f"Pod {proxy.metadata.namespace}/{proxy.metadata.name}",
            identity=certificate.identity if certificate else "",
            namespace=proxy.metadata.namespace,
        )
        if process and process.pid and Path(process.probe).exists():
            return sender._replace(socket=Path(process.probe))
        if process is None and proxy.status.connection_time:
            return sender._replace(pod=proxy.metadata.name, by_address=True)
    reasons = "; ".join(
        f"{proxy.metadata.name}: {proxy.status.message or 'it runs on another machine'}" for proxy in proxies
    )
    raise HeadgateError(f"can't send requests from a sidecar of {about}: {reasons}")


def _belongs(proxy: Proxy, caller: Caller) -> bool:
    """Return whether a sidecar is that of a pod of the caller, which is in the proxy's namespace."""
    match caller.kind:
        case "Pod":
            return proxy.metadata.name == caller.name
        case "ServiceAccount":
            return proxy.service_account == caller.name
        case _:
            return f"{caller.kind}/{caller.name}" in proxy.workloads


async def send(
    client: Client, sender: Sender, batch: Batch, where: TryPort, on_request: Callable[[int], object]
) -> Tally:
    """Send a batch of requests to a Service port, and return the tally; `on_request` gets the number of finished requests.

    Raises ProxyError when a proxy on this machine can't be reached, HeadgateError when the sidecar on a cluster can't be used.
    """
    if sender.by_address:
        headers = (*batch.request.headers, (ORIGINAL_ADDRESS, _address(where)))
        batch = structs.replace(batch, request=structs.replace(batch.request, headers=headers))
    if sender.socket:
        probe = RequestBatch(sender.socket, batch, on_request=lambda: on_request(probe.tally.requests))
        return await probe.run()
    container = PodContainer(sender.namespace, sender.pod, CONTAINER)
    try:
        return await _send_from_pod(client, container, batch, on_request)
    except ProgramFailed as error:
        raise HeadgateError(f"can't send requests from the sidecar of {sender.name}: {failure(error)}") from error


def failure(error: ProgramFailed) -> str:
    """Return why a program of headgate has failed in a sidecar."""
    if error.code == _USAGE_ERROR:
        return "its image is of an older headgate; create the pod again, and it gets the current image"
    return str(error).removeprefix("error: ")


async def _send_from_pod(
    client: Client, container: PodContainer, batch: Batch, on_request: Callable[[int], object]
) -> Tally:
    rest = b""
    order = msgspec.json.encode(batch) + b"\n"
    async with contextlib.aclosing(run_program(client, container, PROGRAM, stdin=order)) as output:
        async for part in output:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                progress = msgspec.json.decode(line, type=ProbeProgress)
                on_request(progress.finished)
                if progress.counts:
                    return Tally.of(progress.counts)
    raise HeadgateError(
        f"the sidecar of Pod {container.namespace}/{container.pod} has ended before all responses arrived"
    )


def _address(where: TryPort) -> str:
    """Return the address by which a transparent sidecar finds the routes of a Service port."""
    if not where.address:
        raise HeadgateError(
            f"Service {where.service} has no cluster IP: its clients choose a pod themselves, and `try` sends only to"
            " cluster IPs; send requests from a container of the client, for example with `kubectl exec`"
        )
    address = ipaddress.ip_address(where.address)
    return f"[{address}]:{where.port}" if address.version == 6 else f"{address}:{where.port}"
