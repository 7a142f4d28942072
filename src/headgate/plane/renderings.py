"""The protocol between the active control plane and a revision: the revision compiles, renders and explains, the active one serves.

A request has the versions of the objects that the active control plane has compiled, and the TLS modes of workloads. The revision,
which watches the objects itself, waits until it has read them in these versions or later ones. So its configurations are at least
as new as the build for which they are requested. Secrets are not rendered: no key leaves the active control plane.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

import msgspec
from msgspec import structs

from headgate.compiler.compile import Compiler
from headgate.compiler.explain_request import explain_request
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.config import ORDER, RUNTIME, SECRET, Configuration, Encoded, Resources
from headgate.envoy.encode import EMPTY_CONFIGURATION, Memo, encode_all
from headgate.envoy.view import ProxyView
from headgate.errors import ProxyError
from headgate.latest import until
from headgate.model.identities import Credential, PrivateText
from headgate.model.mutual_tls import TlsMode
from headgate.plane.expected_proxies import ExpectedProxies, HostProxies
from headgate.plane.feed import COMPILED, GROUP_KINDS, Feed
from headgate.resources.explanations import ExplanationStatus
from headgate.resources.meta import Key, Value
from headgate.resources.request_spec import RequestSpec
from headgate.settings import Settings

CONTRACT = 1
"""The number of what both sides must understand alike: this protocol, the names of resources, the metrics that proxies report, and what
sidecars read. A change without another number fails `tests/golden/test_contract.py`.
"""
RENDER_PATH, EXPLAIN_PATH = "/render", "/explain"
WATCHED_S = 1.0
"""The wait for watched changes, after which the kinds are listed: an object may have a later version than the requested one."""
RENDERED = tuple(type_url for type_url in ORDER if type_url not in (SECRET, RUNTIME))
_PRESENT = Credential(chain="", key=PrivateText(""), roots="")
"""Stands for the certificate of a proxy: every proxy gets one before its first configuration."""


class ObjectVersion(Value, frozen=True, kw_only=True):
    """The version of an object that a build has; empty for a deleted object."""

    key: Key
    version: str


class Versioned(Value, frozen=True, kw_only=True):
    """A message with the `CONTRACT` of its sender. It has no default: a default is not encoded, and the receiver would assume its own."""

    contract: int


class RenderRequest(Versioned, frozen=True, kw_only=True):
    """The request: `changed` has the objects since the last request, None for all. `held` has the sets that the client keeps."""

    changed: tuple[ObjectVersion, ...] | None = None
    modes: Mapping[str, TlsMode] = {}
    held: tuple[str, ...] = ()


class WireResource(Value, frozen=True, kw_only=True):
    """An encoded resource (`envoy.config.Encoded`)."""

    body: bytes
    digest: str
    needs: tuple[str, ...] = ()


class RenderResponse(Versioned, frozen=True, kw_only=True):
    """The response: for each proxy and type the IDs of two sets, shared and own, and the sets that the client lacks."""

    proxies: Mapping[str, Mapping[str, tuple[str, str]]] = {}
    sets: Mapping[str, Mapping[str, WireResource]] = {}


class ExplainRequest(Value, frozen=True, kw_only=True):
    """The request for an explanation, which is answered as JSON. `modes` has the TLS modes of workloads by name."""

    modes: Mapping[str, TlsMode]
    sent: RequestSpec


def contract_of(message: bytes) -> int:
    """Return the `CONTRACT` of a message's sender; the rest may be of another form. Raises msgspec.DecodeError."""
    return msgspec.msgpack.decode(message, type=Versioned).contract


class ConfigRenderer:
    """Renders the configurations for one revision's proxies, and explains their requests, in the revision's own process."""

    def __init__(self, revision: str, feed: Feed, host: HostProxies, settings: Settings) -> None:
        self._revision = revision
        self._feed = feed
        self._host = host
        self._settings = settings
        self._compiler, self._memo = Compiler(), Memo()
        self._turn = asyncio.Lock()

    async def render(self, body: bytes) -> RenderResponse:
        """Answer an encoded `RenderRequest`: the configurations for all of the revision's proxies, with objects at least as new.

        A client with another `CONTRACT` gets none. Raises msgspec.DecodeError.
        """
        if contract_of(body) != CONTRACT:
            return RenderResponse(contract=CONTRACT)
        request = msgspec.msgpack.decode(body, type=RenderRequest)
        await self._wait_read(request.changed)
        async with self._turn:
            return await asyncio.to_thread(self._response, self._snapshot(), request)

    async def explain(self, request: ExplainRequest) -> ExplanationStatus:
        """Explain a request by the rules of the revision. Raises BadRequest, NotFound."""
        await self._feed.wait_until_current()
        async with self._turn:
            return await asyncio.to_thread(self._explanation, self._snapshot(), request)

    def _snapshot(self) -> Snapshot:
        snapshot = self._feed.snapshot.get()
        if snapshot is None:
            raise AssertionError("unreachable: the feed has read all objects")
        return snapshot

    def _explanation(self, snapshot: Snapshot, request: ExplainRequest) -> ExplanationStatus:
        compiled = self._compiler.compile(snapshot, self._settings, request.modes)
        return structs.replace(
            explain_request(compiled, snapshot, request.sent, on_cluster=self._settings.gateway_pods),
            revision=self._revision,
        )

    def _response(self, snapshot: Snapshot, request: RenderRequest) -> RenderResponse:
        compiled = self._compiler.compile(snapshot, self._settings, request.modes)
        self._memo.begin_build()
        views = (
            ProxyView(node, compiled.mesh, workload, _PRESENT)
            for node, workload in ExpectedProxies(compiled.mesh, self._host).nodes
            if workload and workload.revision == self._revision
        )
        return response(dict(filter(None, encode_all(views, self._memo))), request.held)

    async def _wait_read(self, changed: Sequence[ObjectVersion] | None) -> None:
        """Wait until the snapshot has objects in these versions, or in later ones, which only a list shows."""
        if changed is None:
            await self._feed.wait_until_current()
            return
        read = [each for each in changed if (each.key.group, each.key.kind) in GROUP_KINDS]
        try:
            async with asyncio.timeout(WATCHED_S):
                await until(lambda: all(self._feed.has_read(each.key, each.version) for each in read), self._feed.seen)
        except TimeoutError:
            kinds = {(each.key.group, each.key.kind) for each in read}
            await self._feed.wait_until_current(*(kind for kind in COMPILED if (kind.group, kind.kind) in kinds))


def response(configs: Mapping[str, Configuration], held: Sequence[str]) -> RenderResponse:
    """Return configurations as a response, without the sets that the client holds."""
    proxies: dict[str, Mapping[str, tuple[str, str]]] = {}
    sets: dict[str, Mapping[str, Encoded]] = {}
    ids: dict[int, str] = {}  # by the identity of mappings, which `configs` keeps alive

    def id_of(resources: Mapping[str, Encoded]) -> str:
        if id(resources) not in ids:
            ids[id(resources)] = _set_id(resources)
            sets[ids[id(resources)]] = resources
        return ids[id(resources)]

    for node_id, config in configs.items():
        proxies[node_id] = {
            type_url: (id_of(config[type_url].common), id_of(config[type_url].own)) for type_url in RENDERED
        }
    return RenderResponse(
        contract=CONTRACT,
        proxies=proxies,
        sets={
            name: {
                key: WireResource(body=entry.body, digest=entry.digest, needs=tuple(sorted(entry.needs)))
                for key, entry in resources.items()
            }
            for name, resources in sets.items()
            if name not in held
        },
    )


def _set_id(resources: Mapping[str, Encoded]) -> str:
    content = msgspec.json.encode([[name, each.digest, sorted(each.needs)] for name, each in resources.items()])
    return blake2b(content, digest_size=16).hexdigest()


class ReceivedSets:
    """The sets of a revision that the active control plane keeps, so that equal sets stay the same objects for its sessions."""

    def __init__(self) -> None:
        self._sets: Mapping[str, Mapping[str, Encoded]] = {}
        self._resources: dict[tuple[str, str], Resources] = {}
        self._configs: dict[str, tuple[Mapping[str, tuple[str, str]], Configuration]] = {}

    @property
    def held(self) -> tuple[str, ...]:
        """The IDs of the kept sets."""
        return tuple(self._sets)

    def take(self, answer: RenderResponse) -> Mapping[str, Configuration]:
        """Return the configurations of a response by node ID, and forget the sets that it does not use.

        Raises ProxyError if the response uses a set that it lacks and that is not held.
        """
        new = {name: dict(_decoded(resources)) for name, resources in answer.sets.items()}
        used = {name for types in answer.proxies.values() for pair in types.values() for name in pair}
        if lacking := used - self._sets.keys() - new.keys():
            raise ProxyError(f"its response lacks {len(lacking)} of {len(used)} sets of resources")
        self._sets = {name: self._sets[name] if name in self._sets else new[name] for name in used}
        before, self._configs = self._configs, {}
        kept, self._resources = self._resources, {}
        for node_id, types in answer.proxies.items():
            last = before.get(node_id)
            if last is None or last[0] != types:
                config = {
                    **EMPTY_CONFIGURATION,
                    **{name: kept.get(pair) or self._joined(pair) for name, pair in types.items()},
                }
                last = types, config
            self._resources |= {pair: last[1][name] for name, pair in types.items()}
            self._configs[node_id] = last
        return {node_id: config for node_id, (_, config) in self._configs.items()}

    def _joined(self, pair: tuple[str, str]) -> Resources:
        if pair not in self._resources:
            self._resources[pair] = Resources(self._sets[pair[0]], self._sets[pair[1]])
        return self._resources[pair]


def _decoded(resources: Mapping[str, WireResource]) -> Iterator[tuple[str, Encoded]]:
    for name, entry in resources.items():
        yield name, Encoded(entry.body, entry.digest, frozenset(entry.needs))
