"""What the inspect API answers (D29): questions about the running mesh, out of what the plane knows.

Nothing here changes anything, and each answer is about one moment.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol, TypeAlias

from cryptography import x509
from msgspec import structs

from headgate.control.machine import Machine
from headgate.control.status import blaming
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET, Encoded, TypeUrl
from headgate.envoy.view import SIDECAR
from headgate.identity.certificates import dates, read_certificates
from headgate.model.identities import SYSTEM_NAMESPACE, Credential
from headgate.resources import inspect
from headgate.resources.inspect import Certificate, ObjectName, ProxyProcess, ProxyStatus, Refusal, ResourceType
from headgate.resources.times import timestamp
from headgate.xds import fleet
from headgate.xds.session import NOTHING, Rejected, Shelf

TYPES: Mapping[str, TypeUrl] = {
    "clusters": CLUSTER,
    "endpoints": ENDPOINTS,
    "listeners": LISTENER,
    "routes": ROUTES,
    "scopes": SCOPES,
    "secrets": SECRET,
}
"""The types of Envoy's resources, by the names that users know."""
_NAMES = {type_url: name for name, type_url in TYPES.items()}
_VERSION_BYTES = 6
Blame: TypeAlias = Callable[[str, Rejected], object]
"""Returns the object that a resource comes from which a proxy (node id) refused."""


class Host(Protocol):
    """What a host knows of the proxies that it runs, which the plane does not."""

    def processes(self) -> Mapping[str, ProxyProcess]:
        """Return the Envoy processes by node id; none of proxies that other machines run."""


class Questions:
    """Answers about one machine's plane."""

    def __init__(self, machine: Machine, host: Host, *, clock: Callable[[], float] = time.time) -> None:
        self.machine = machine
        self._host = host
        self._clock = clock

    def proxies(self) -> Sequence[inspect.Proxy]:
        """Return every proxy that the mesh has, by namespace and name."""
        loop, now, processes = self.machine.loop, self._clock(), self._host.processes()
        compiled, faults = loop.compiled.get(), loop.credentials.faults.get()
        blame = blaming(compiled) if compiled else _blame_nothing
        found = [
            inspect.Proxy(
                metadata=object_name(proxy.id),
                node=proxy.id,
                status=structs.replace(
                    proxy_status(proxy, blame, now),
                    process=processes.get(proxy.id),
                    certificate=_certificate(loop.proven(proxy.id), faults.get(proxy.id, "")),
                ),
            )
            for proxy in self.machine.fleet.proxies.values()
        ]
        return sorted(found, key=lambda item: (item.metadata.namespace, item.metadata.name))


def _blame_nothing(_node_id: str, _rejected: Rejected) -> str:
    """Stand in while nothing is compiled."""
    return ""


def object_name(node_id: str) -> ObjectName:
    """Return the namespace and name under which the API has a proxy."""
    kind, _, pod = node_id.partition("/")
    if kind == SIDECAR:
        namespace, _, name = pod.partition("/")
        return ObjectName(namespace=namespace, name=name)
    return ObjectName(namespace=SYSTEM_NAMESPACE, name=node_id)


def proxy_status(proxy: fleet.Proxy, blame: Blame, now: float) -> ProxyStatus:
    """Return what a proxy was sent and what it answered, as of `now` (seconds since the epoch)."""
    answers = proxy.answers
    current = tuple(proxy.refusals())
    refusals = tuple(_refusal(proxy, rejected, blame) for rejected in current)
    state, message = _state(proxy, refusals, now)
    last = answers.rejected[0] if answers.rejected else None
    return ProxyStatus(
        state=state,
        message=message,
        connected=timestamp(answers.connected) if proxy.session else "",
        last_acknowledged=_time(max(answers.acknowledged.values(), default=0.0)),
        types=tuple(_type(proxy, name, type_url) for name, type_url in TYPES.items()) if proxy.session else (),
        refusals=refusals,
        last_refusal=structs.replace(_refusal(proxy, last, blame), current=last in current) if last else None,
    )


def _state(proxy: fleet.Proxy, refusals: Sequence[Refusal], now: float) -> tuple[inspect.ProxyState, str]:
    """Return how a proxy is, and why when it is not in sync."""
    if proxy.session is None:
        return "Disconnected", (
            "it has no stream, and goes on with the configuration that it had"
            if proxy.serves
            else "it has not connected"
        )
    if proxy.config.get() is None:
        return "Lagging", "it gets no configuration before it has a certificate"
    if refusals:
        return "Refused", f"{refusals[0].resource}: {refusals[0].message}"
    if proxy.settled():
        return "InSync", ""
    waiting = min(proxy.answers.sent.values(), default=now)
    return "Lagging", f"it has not answered for {max(now - waiting, 0):.0f} s"


def _type(proxy: fleet.Proxy, name: str, type_url: TypeUrl) -> ResourceType:
    shelf = proxy.session.shelves[type_url] if proxy.session else Shelf()
    config = (proxy.config.get() or {}).get(type_url, NOTHING)
    wanted = {key: config[key].digest for key in _wanted(shelf, config)}
    held = {key: shelf.held[key].digest for key in wanted if key in shelf.held}
    return ResourceType(
        type=name,
        resources=len(wanted),
        held=sum(held.get(key) == digest for key, digest in wanted.items()),
        version=version(wanted),
        held_version=version(held),
        acknowledged=_time(proxy.answers.acknowledged.get(type_url, 0.0)),
    )


def _wanted(shelf: Shelf, config: Mapping[str, Encoded]) -> Sequence[str]:
    return list(config) if shelf.wildcard else sorted(shelf.subscribed & config.keys())


def version(digests: Mapping[str, str]) -> str:
    """Return one version for many resources: a digest of their names and versions; empty for none."""
    if not digests:
        return ""
    text = "\n".join(f"{name} {digest}" for name, digest in sorted(digests.items()))
    return blake2b(text.encode(), digest_size=_VERSION_BYTES).hexdigest()


def _refusal(proxy: fleet.Proxy, rejected: Rejected, blame: Blame) -> Refusal:
    last = proxy.answers.rejected
    return Refusal(
        type=_NAMES[rejected.type_url],
        resource=rejected.name,
        message=rejected.message.strip(),
        object=str(blame(proxy.id, rejected)),
        time=_time(last[1]) if last and last[0] == rejected else "",
    )


def _certificate(credential: Credential | None, fault: str) -> Certificate | None:
    """Return what the certificate of a proxy's configuration says; the key is not looked at."""
    if credential is None:
        return Certificate(fault=fault) if fault else None
    first, last, identity = _read(credential.chain)
    return Certificate(identity=identity, not_before=timestamp(first), not_after=timestamp(last), fault=fault)


@lru_cache(10_000)
def _read(chain: str) -> tuple[float, float, str]:
    leaf = read_certificates(chain, "a proxy's certificate")[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return *dates(leaf), next(iter(names.get_values_for_type(x509.UniformResourceIdentifier)), "")


def _time(seconds: float) -> str:
    return timestamp(seconds) if seconds else ""
