"""What the inspect API answers (D29): questions about the running mesh, out of what the plane knows.

Nothing here changes anything, and each answer is about one moment.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, Protocol

from cryptography import x509
from msgspec import structs

from headgate.compiler.explain import Explanation
from headgate.compiler.report import Compiled, Finding
from headgate.compiler.requests import Asked, explain_request
from headgate.compiler.snapshot import account_name
from headgate.envoy.config import (
    CHAIN,
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    NO_RESOURCES,
    ROUTES,
    RUNTIME,
    SCOPES,
    SECRET,
    Encoded,
    Resources,
    TypeUrl,
)
from headgate.envoy.resource_json import content
from headgate.envoy.view import namespaced_name, pod_of
from headgate.errors import HeadgateError
from headgate.identity.certificates import dates, read_certificates
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.model.identities import Credential
from headgate.plane.live_state import LiveState
from headgate.plane.mesh_state import Observed, mesh_state
from headgate.plane.status.findings import PROXY, Origin, origins
from headgate.plane.tap.taps import TapQuery
from headgate.resources import inspect
from headgate.resources.inspect import (
    Certificate,
    ObjectName,
    PodCounts,
    ProxyProcess,
    ProxyStatus,
    Refusal,
    ResourceType,
    TapEvent,
    TapNotice,
)
from headgate.resources.meta import Key, timestamp
from headgate.resources.pod_owners import deployment_of
from headgate.resources.pods import Pod
from headgate.xds import fleet
from headgate.xds.shelf import Rejected, Shelf
from headgate.xds.versions import Held

_TYPES: Mapping[str, TypeUrl] = dict(
    zip(inspect.TYPES, (CLUSTER, ENDPOINTS, LISTENER, CHAIN, ROUTES, SCOPES, SECRET, RUNTIME), strict=True)
)
_NAMES = {type_url: name for name, type_url in _TYPES.items()}
_VERSION_BYTES = 6
_NAME_BYTES = 4
PATIENCE_S = 5.0  # for a build that is under way


class ConfigQuery(NamedTuple):
    """Which resources of which proxy: of one type or all, of one name or all, with their content or without."""

    proxy: ObjectName
    type: str = ""
    name: str = ""
    content: bool = False


class Host(Protocol):
    """What a host knows of the proxies that it runs, which the plane does not."""

    def processes(self) -> Mapping[str, ProxyProcess]:
        """Return the Envoy processes by node id; none of proxies that other machines run."""

    def pods(self) -> PodCounts | None:
        """Return how many pods it runs; none when it runs no pods itself."""


class Inspector:
    """Answers about one machine's plane."""

    def __init__(self, live_state: LiveState, host: Host, *, clock: Callable[[], float] = time.time) -> None:
        self.live_state = live_state
        self._host = host
        self._clock = clock
        self._started = clock()

    async def tap(self, asked: TapQuery) -> AsyncGenerator[TapEvent | TapNotice] | None:
        """Return live requests of a resource; none when it does not exist."""
        return await self.live_state.taps.tap(asked)

    def proxies(self) -> Sequence[inspect.Proxy]:
        """Return every proxy that the mesh has, by namespace and name; without versions, which cost a look at each resource."""
        loop, now, processes = self.live_state.loop, self._clock(), self._host.processes()
        origin, faults = self._origin(), loop.credentials.faults.get()
        snapshot = self.live_state.feed.snapshot.get()
        pods = snapshot.pods if snapshot else {}
        found = [
            inspect.Proxy(
                metadata=object_name(proxy.id),
                node=proxy.id,
                **_owner(pods.get(pod_of(proxy.id))),
                status=structs.replace(
                    proxy_status(proxy, origin, now),
                    process=processes.get(proxy.id),
                    certificate=_certificate(loop.credential_of(proxy.id), faults.get(proxy.id, "")),
                ),
            )
            for proxy in self.live_state.fleet.proxies.values()
        ]
        return sorted(found, key=lambda item: (item.metadata.namespace, item.metadata.name))

    def proxy(self, place: ObjectName) -> inspect.Proxy | None:
        """Return one proxy with the versions of all types."""
        found = next((item for item in self.proxies() if item.metadata == place), None)
        if found is None:
            return None
        held = self.live_state.fleet.proxies[found.node]
        types = tuple(with_version(held, one) for one in found.status.types)
        return structs.replace(found, status=structs.replace(found.status, types=types))

    async def config(self, asked: ConfigQuery) -> inspect.ProxyConfig | None:
        """Return what a proxy is to hold and what it acknowledged; none when there is no such proxy."""
        proxies = self.live_state.fleet.proxies.values()
        proxy = next((item for item in proxies if object_name(item.id) == asked.proxy), None)
        if proxy is None:
            return None
        found = list(config_of(proxy, self._origin(), asked))
        resources = tuple(item for item, _ in found)
        if asked.content:  # seconds for a large mesh, so not on the loop that serves the proxies
            resources = await asyncio.to_thread(_with_content, found)
        return inspect.ProxyConfig(metadata=asked.proxy, node=proxy.id, resources=resources)

    async def explain(self, sent: Asked) -> Explanation:
        """Say where a request would go by all objects that are stored now. Raises BadRequest, NotFound, HeadgateError."""
        compiled = await self._compiled()
        snapshot = self.live_state.feed.snapshot.get()
        if snapshot is None or snapshot.revision != compiled.revision:
            raise AssertionError("what is compiled is not of the snapshot right after the wait for it")
        return explain_request(compiled, snapshot, sent)

    async def findings(self) -> inspect.FindingList:
        """Return what there is to say about the objects that are stored now, and about proxies. Raises HeadgateError."""
        compiled = await self._compiled()
        found = tuple(finding_of(item) for item in dict.fromkeys(self.live_state.findings()))
        return inspect.FindingList(objects=len(compiled.report.seen), items=found)

    def status(self) -> inspect.MeshStatus:
        """Return how the mesh is."""
        live_state, loop = self.live_state, self.live_state.loop
        compiled, snapshot = loop.compiled.get(), live_state.feed.snapshot.get()
        revisions = inspect.Revisions(
            stored=snapshot.revision if snapshot else 0,
            compiled=compiled.revision if compiled else 0,
            current=live_state.is_current,
            failures=loop.failures,
        )
        world = Observed(revisions, tuple(self.proxies()), live_state.findings(), self._host.pods())
        return inspect.MeshStatus(
            metadata=ObjectName(name=inspect.MESH), status=mesh_state(world, started=self._started, now=self._clock())
        )

    async def _compiled(self) -> Compiled:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self.live_state.wait_compiled()
        except TimeoutError as error:
            raise HeadgateError(
                f"the objects are not compiled after {PATIENCE_S:g} s; the log of headgate says why"
            ) from error

    def _origin(self) -> Origin:
        compiled = self.live_state.loop.compiled.get()
        return origins(compiled) if compiled else (lambda _node_id, _type_url, name: Key("", PROXY, "", name))


def config_of(
    proxy: fleet.Proxy, origin: Origin, asked: ConfigQuery
) -> Iterator[tuple[inspect.ConfigResource, Encoded]]:
    """Yield the resources that a proxy subscribes to, by type and name; all that it is to hold while it is away.

    They are without content, which is in the bytes beside them.
    """
    wanted = proxy.config.get() or {}
    refused = {(item.type_url, item.name): item.message.strip() for item in proxy.refusals()}
    for type_name, type_url in _TYPES.items():
        config = wanted.get(type_url, NO_RESOURCES)
        shelf = proxy.session.shelves[type_url] if proxy.session else Shelf(wildcard=True)
        for name in sorted(_wanted(shelf, config)) if asked.type in {"", type_name} else ():
            if asked.name in {"", name}:
                held, encoded = shelf.held.get(name), config[name]
                refusal = refused.get((type_url, name), "")
                yield (
                    inspect.ConfigResource(
                        type=type_name,
                        name=name,
                        object=_written(origin(proxy.id, type_url, name)),
                        state=_state_of(encoded, held, refusal),
                        version=encoded.digest,
                        held_version=held.digest if held else "",
                        message=refusal,
                    ),
                    encoded,
                )


def _with_content(found: Sequence[tuple[inspect.ConfigResource, Encoded]]) -> tuple[inspect.ConfigResource, ...]:
    return tuple(structs.replace(item, content=content(_TYPES[item.type], encoded)) for item, encoded in found)


def _state_of(encoded: Encoded, held: Held | None, refusal: str) -> inspect.ResourceState:
    if refusal:
        return "Refused"
    return "Held" if held and held.digest == encoded.digest else "Pending"


def _written(key: Key) -> str:
    """Write an object's key; nothing for what comes from no object."""
    return "" if key.kind == PROXY else str(key)


def _owner(pod: Pod | None) -> Mapping[str, str]:
    """Return what a proxy says of its pod."""
    return {"service_account": account_name(pod), "deployment": deployment_of(pod.metadata)} if pod else {}


def object_name(node_id: str) -> ObjectName:
    """Return the namespace and name under which the API has a proxy."""
    namespace, name = namespaced_name(node_id)
    return ObjectName(namespace=namespace, name=name)


def proxy_status(proxy: fleet.Proxy, origin: Origin, now: float) -> ProxyStatus:
    """Return what a proxy was sent and what it answered, as of `now` (seconds since the epoch)."""
    answers = proxy.answers
    current = tuple(proxy.refusals())
    refusals = tuple(_refusal(proxy, rejected, origin) for rejected in current)
    state, message = _state(proxy, refusals, now)
    last = answers.rejected[0] if answers.rejected else None
    waiting = min(answers.sent.values(), default=0.0) if proxy.session else 0.0
    return ProxyStatus(
        state=state,
        message=message,
        serves=proxy.serves,
        connected=timestamp(answers.connected) if proxy.session else "",
        last_acknowledged=_time(max(answers.acknowledged.values(), default=0.0)),
        waiting=_time(waiting),
        types=tuple(_type(proxy, name, type_url) for name, type_url in _TYPES.items()) if proxy.session else (),
        refusals=refusals,
        last_refusal=structs.replace(_refusal(proxy, last, origin), current=last in current) if last else None,
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
    config = (proxy.config.get() or {}).get(type_url, NO_RESOURCES)
    resources = len(shelf.target(config if isinstance(config, Resources) else Resources(config, {})))
    return ResourceType(
        type=name,
        resources=resources,
        held=resources - len(shelf.missing(config)),
        acknowledged=_time(proxy.answers.acknowledged.get(type_url, 0.0)),
    )


def with_version(proxy: fleet.Proxy, one: ResourceType) -> ResourceType:
    """Return a type with the version that the proxy is to hold, and the one that it holds."""
    type_url = _TYPES[one.type]
    shelf = proxy.session.shelves[type_url] if proxy.session else Shelf()
    config = (proxy.config.get() or {}).get(type_url, NO_RESOURCES)
    wanted = {key: config[key].digest for key in _wanted(shelf, config)}
    held = {key: shelf.held[key].digest for key in wanted if key in shelf.held}
    return structs.replace(one, version=version(wanted), held_version=version(held))


def _wanted(shelf: Shelf, config: Mapping[str, Encoded]) -> Sequence[str]:
    return list(config) if shelf.wildcard else sorted(shelf.subscribed & config.keys())


def version(digests: Mapping[str, str]) -> str:
    """Return one version for many resources: a digest of their names and versions; empty for none."""
    if not digests:
        return ""
    text = "\n".join(f"{name} {digest}" for name, digest in sorted(digests.items()))
    return blake2b(text.encode(), digest_size=_VERSION_BYTES).hexdigest()


def _refusal(proxy: fleet.Proxy, rejected: Rejected, origin: Origin) -> Refusal:
    last = proxy.answers.rejected
    return Refusal(
        type=_NAMES[rejected.type_url],
        resource=rejected.name,
        message=rejected.message.strip(),
        object=_written(origin(proxy.id, rejected.type_url, rejected.name)),
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


def finding_of(item: Finding) -> inspect.Finding:
    """Return a finding as the API has it. Its name is a digest of its content, after the name of the object."""
    about = item.about
    digest = blake2b(f"{about}\n{item.reason}\n{item.field}\n{item.message}".encode(), digest_size=_NAME_BYTES)
    return inspect.Finding(
        metadata=ObjectName(namespace=about.namespace or DEFAULT_NAMESPACE, name=f"{about.name}.{digest.hexdigest()}"),
        object=inspect.About(group=about.group, kind=about.kind, namespace=about.namespace, name=about.name),
        severity=item.reason.severity.value,
        reason=item.reason.value,
        field=item.field,
        message=item.message,
    )
