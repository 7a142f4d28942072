"""Answers the read-only requests of the inspect API (D29) from the state of the control plane."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple, Protocol

from msgspec import structs

from headgate.admission.injection import PodNamespace, pod_namespace
from headgate.compiler.explain_request import caller_pod, explain_request
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled, Finding
from headgate.compiler.snapshot import Snapshot, account_name
from headgate.envoy.config import NO_RESOURCES, Encoded
from headgate.envoy.node_ids import SIDECAR, pod_of
from headgate.envoy.resource_json import content
from headgate.errors import HeadgateError, NotFound
from headgate.kinds import names_of
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.model.localhost_names import is_name
from headgate.plan.planning import PlanSpec, PlanStatus
from headgate.plane.call_records import call_records
from headgate.plane.history import explain_at
from headgate.plane.live_state import LiveState
from headgate.plane.mesh_state import HostState, Observed, mesh_state
from headgate.plane.node_names import namespaced_name
from headgate.plane.plans import planned
from headgate.plane.pod_sidecars import PodFacts, explain_pod
from headgate.plane.probe_failures import probe_failures
from headgate.plane.proxy_certificates import proxy_certificate
from headgate.plane.proxy_status import TYPES, own_key, proxy_status, wanted_names, with_version
from headgate.plane.snapshot_view import SnapshotView
from headgate.plane.status.findings import PROXY, Origin, origins
from headgate.plane.tap.taps import TapQuery
from headgate.plane.traffic_graphs import TrafficGraphs
from headgate.plane.traffic_series import SeriesReader
from headgate.plane.unready_backends import PodSource, unready_messages
from headgate.plane.workload_sidecars import workload_sidecars
from headgate.resources import inspect
from headgate.resources.call_records import CallRecordList
from headgate.resources.core.pod import MeshPod
from headgate.resources.core.pod_metadata import REVISION
from headgate.resources.explanations import ExplanationStatus
from headgate.resources.inspect import ObjectName, ProxyProcess, TapEvent, TapNotice
from headgate.resources.mesh_status import MESH, FailingTraffic, MeshStatus, Revisions
from headgate.resources.meta import Key, Object
from headgate.resources.pod_owners import workloads_of
from headgate.resources.registry import POD
from headgate.resources.request_spec import RequestSpec, read_client, url_parts
from headgate.resources.workload_sidecars import WorkloadSidecars
from headgate.xds import fleet
from headgate.xds.subscription import Subscription
from headgate.xds.versions import AcknowledgedVersion

log = logging.getLogger(__name__)
_NAME_BYTES = 4
BUILD_TIMEOUT_S = 20.0  # less than the 30 seconds that a command waits for an answer
REVISION_TIMEOUT_S = 8.0  # after the build
COUNTS_TIMEOUT_S = 3.0  # the status waits no longer for the counts of traffic

ExplainByRevision = Callable[[str, RequestSpec], Awaitable[ExplanationStatus]]
"""Explains a request by the rules of a revision, which is its first argument. Raises HeadgateError."""


class ConfigQuery(NamedTuple):
    """A query for the xDS resources of a proxy.

    An empty `type` selects all types, and an empty `name` all names. With `content`, the answer includes each resource
    as JSON.
    """

    proxy: ObjectName
    type: str = ""
    name: str = ""
    content: bool = False


class Host(PodSource, Protocol):
    """The control plane's environment: Envoy processes and pods on its machine, and kinds that the API server lacks."""

    def processes(self) -> Mapping[str, ProxyProcess]:
        """Return the Envoy processes that headgate started, by node ID."""

    async def state(self) -> HostState:
        """Return the state of the environment: its pods, its store, and problems."""


class TrafficAnswers(NamedTuple):
    """What answers with traffic graphs and series; None without proxies that report traffic."""

    graphs: TrafficGraphs | None = None
    series: SeriesReader | None = None


class Inspector:
    """Answers the inspect API's requests about one control plane."""

    def __init__(
        self,
        live_state: LiveState,
        host: Host,
        *,
        clock: Callable[[], float] = time.time,
        explain_by_revision: ExplainByRevision | None = None,
        traffic: TrafficAnswers = TrafficAnswers(),  # noqa: B008 - it is immutable
    ) -> None:
        self.live_state = live_state
        self.graphs, self.series = traffic
        self._explain_by_revision = explain_by_revision
        self._host = host
        self._clock = clock
        self._started = clock()

    async def tap(self, query: TapQuery) -> AsyncGenerator[TapEvent | TapNotice] | None:
        """Return the event stream of a tap on the object in `query`; None if the object does not exist."""
        return await self.live_state.taps.tap(query)

    def proxies(self) -> Sequence[inspect.Proxy]:
        """Return all proxies, sorted by namespace and name.

        The resource types of a proxy have no versions here, because these are expensive to compute; `proxy` returns
        them.
        """
        loop, now, processes = self.live_state.loop, self._clock(), self._host.processes()
        origin, faults = self._origin(), loop.credentials.faults.get()
        pods = (self.live_state.feed.snapshot.get() or Snapshot()).pods
        proxies = [
            inspect.Proxy(
                metadata=object_name(proxy.id),
                node=proxy.id,
                **_owner(pods.get(pod_of(proxy.id))),
                revision=_revision(pods.get(pod_of(proxy.id)), loop.renderings.get().revisions),
                status=structs.replace(
                    proxy_status(proxy, pods.get(pod_of(proxy.id)), origin, now),
                    process=processes.get(proxy.id),
                    certificate=proxy_certificate(loop.credential_of(proxy.id), faults.get(proxy.id, "")),
                ),
            )
            for proxy in self.live_state.fleet.proxies.values()
        ]
        return sorted(proxies, key=lambda proxy: (proxy.metadata.namespace, proxy.metadata.name))

    def proxy(self, name: ObjectName) -> inspect.Proxy | None:
        """Return a proxy with the version of each resource type; None if there is no such proxy."""
        proxy = next((proxy for proxy in self.proxies() if proxy.metadata == name), None)
        if proxy is None:
            return None
        types = tuple(
            with_version(self.live_state.fleet.proxies[proxy.node], resource_type)
            for resource_type in proxy.status.types
        )
        return structs.replace(proxy, status=structs.replace(proxy.status, types=types))

    async def config(self, query: ConfigQuery) -> inspect.ProxyConfig | None:
        """Return a proxy's resources, each with its wanted and its acknowledged version; None for an unknown proxy."""
        proxies = self.live_state.fleet.proxies.values()
        proxy = next((proxy for proxy in proxies if object_name(proxy.id) == query.proxy), None)
        if proxy is None:
            return None
        encoded_resources = list(config_of(proxy, self._origin(), query))
        resources = tuple(resource for resource, _ in encoded_resources)
        if query.content:  # takes seconds in a large mesh, so it must not block the event loop
            resources = await asyncio.to_thread(_with_content, encoded_resources)
        return inspect.ProxyConfig(metadata=query.proxy, node=proxy.id, resources=resources)

    async def pod_sidecar(self, name: ObjectName) -> inspect.PodSidecar:
        """Return why a pod has a sidecar or none. Raises NotFound, Unavailable."""
        pod = await self.live_state.store.get(Key("", "Pod", name.namespace, name.name))
        snapshot = self.live_state.feed.snapshot.get() or Snapshot()
        around = pod_namespace(SnapshotView(snapshot), pod)
        proxy = self.live_state.fleet.proxies.get(f"{SIDECAR}/{name.namespace}/{name.name}")
        typed_pod = snapshot.pods.get(f"{name.namespace}/{name.name}")
        status = proxy_status(proxy, typed_pod, self._origin(), self._clock()) if proxy else None
        decision = self.live_state.controllers.sidecars.decide(pod, around)
        events = await self._host.probe_events()
        failure = probe_failures([pod], events, self._clock()).get(pod["metadata"]["uid"])
        return explain_pod(PodFacts(pod, decision, tuple(around.sidecars), status, failure.details if failure else ""))

    async def workload_sidecars(self, namespace: str = "") -> tuple[WorkloadSidecars, ...]:
        """Return the workloads of a namespace, or of all, whose pods have sidecars or would get them. Raises Unavailable."""
        pods = (await self.live_state.store.list(POD.group, POD.kind, namespace)).items
        view = SnapshotView(self.live_state.feed.snapshot.get() or Snapshot())
        namespaces: dict[str, PodNamespace] = {}

        def around(pod: Object) -> PodNamespace:
            name = pod["metadata"].get("namespace", "")
            return namespaces.get(name) or namespaces.setdefault(name, pod_namespace(view, pod))

        proxies = {proxy.metadata: proxy for proxy in self.proxies()}
        sidecars = self.live_state.controllers.sidecars
        # Thousands of pods take seconds, so they must not block the event loop.
        return await asyncio.to_thread(workload_sidecars, pods, sidecars, around, proxies)

    async def plan(self, spec: PlanSpec) -> PlanStatus:
        """Return the plan of a change. Raises InvalidChange, InvalidCheck, NotFound, HeadgateError."""
        return await planned(self.live_state, spec)

    async def explain(self, sent: RequestSpec, revision: int = 0) -> ExplanationStatus:
        """Return where a request would go, according to all stored objects, or to those of a revision in the history.

        If a revision of headgate configures the caller's proxy, it explains the request; while it does not answer, the
        default one does. Raises BadRequest, NotFound, HeadgateError.
        """
        is_localhost = is_name(url_parts(sent.url).hostname or "")
        localhost_port = (await self._host.state()).localhost_port if is_localhost else 0
        if revision:
            past = await explain_at(self.live_state, sent, revision, localhost_port)
            current = self.live_state.feed.snapshot.get() or Snapshot()
            name = self._revision_of_caller(current, sent)
            message = f"by the default revision, which reads the history; {name} configures the caller's proxy"
            return structs.replace(past, revision_message=message) if name else past
        compiled = await self._compiled()
        snapshot = self.live_state.feed.snapshot.get()
        if snapshot is None or snapshot.revision != compiled.revision:
            raise AssertionError("unreachable: the wait ends when the newest snapshot is compiled")
        try:
            on_cluster = self.live_state.loop.settings.gateway_pods
            by_default = explain_request(compiled, snapshot, sent, localhost_port, on_cluster=on_cluster)
        except NotFound as error:
            raise NotFound("; ".join((str(error), *self._refusals(sent)))) from None
        domain, now = self.live_state.loop.settings.domain, self._clock()
        unready = await unready_messages(self._host, snapshot, by_default, domain=domain, now=now)
        by_default = structs.replace(by_default, unready_messages=unready)
        name = self._revision_of_caller(snapshot, sent)
        if not name or self._explain_by_revision is None:
            return by_default
        try:
            async with asyncio.timeout(REVISION_TIMEOUT_S):
                return structs.replace(await self._explain_by_revision(name, sent), unready_messages=unready)
        except (HeadgateError, TimeoutError) as error:
            cause = str(error) or f"it has not answered within {REVISION_TIMEOUT_S:g} s"
            message = f"by the default revision, because {name}, which configures the caller's proxy, does not: {cause}"
            return structs.replace(by_default, revision_message=message)

    def _refusals(self, sent: RequestSpec) -> Iterator[str]:
        """Yield why the cluster refuses the pods of a caller, which has none."""
        if client := read_client(sent.caller, sent.namespace):
            key = Key(names_of(client.kind).group, client.kind, client.namespace, client.name)
            for finding in chain.from_iterable(cell.get() for cell in self.live_state.of_host):
                if finding.about == key and finding.reason is Reason.PODS_REFUSED:
                    yield finding.message

    def _revision_of_caller(self, snapshot: Snapshot, sent: RequestSpec) -> str:
        return _revision(caller_pod(snapshot, sent), self.live_state.loop.renderings.get().revisions)

    async def findings(self) -> inspect.FindingList:
        """Return the findings about all stored objects and the proxies. Raises HeadgateError."""
        compiled = await self._compiled()
        findings = tuple(finding_of(finding) for finding in dict.fromkeys(self.live_state.findings()))
        return inspect.FindingList(objects=len(compiled.report.seen), items=findings)

    def calls(self) -> CallRecordList:
        """Return the recorded calls to workloads."""
        return call_records(self.live_state.access, self._clock())

    async def status(self) -> MeshStatus:
        """Return the status of the mesh."""
        live_state, loop = self.live_state, self.live_state.loop
        compiled, snapshot = loop.compiled.get(), live_state.feed.snapshot.get()
        revisions = Revisions(
            stored=snapshot.revision if snapshot else 0,
            compiled=compiled.revision if compiled else 0,
            current=live_state.is_current,
            failures=loop.failures,
        )
        host = await self._host.state()
        failing = await self._failing()
        observed = Observed(revisions, tuple(self.proxies()), live_state.findings(), host, loop.settings, failing)
        return MeshStatus(
            metadata=ObjectName(name=MESH), status=mesh_state(observed, started=self._started, now=self._clock())
        )

    async def _failing(self) -> tuple[FailingTraffic, ...] | None:
        """Return the traffic that fails; None if its counts can't be read, for example while a Prometheus does not answer.

        A bug must not hide the other parts of the status.
        """
        if self.graphs is None:
            return None
        try:
            async with asyncio.timeout(COUNTS_TIMEOUT_S):
                return await self.graphs.failing()
        except (HeadgateError, TimeoutError):
            return None
        except Exception:
            log.exception("bug: the status lacks the traffic that fails")
            return None

    async def _compiled(self) -> Compiled:
        try:
            async with asyncio.timeout(BUILD_TIMEOUT_S):
                return await self.live_state.wait_compiled()
        except TimeoutError as error:
            raise HeadgateError(
                f"the objects are not compiled after {BUILD_TIMEOUT_S:g} s; see the log of headgate"
            ) from error

    def _origin(self) -> Origin:
        compiled = self.live_state.loop.compiled.get()
        return origins(compiled) if compiled else (lambda _node_id, _type_url, name: Key("", PROXY, "", name))


def config_of(
    proxy: fleet.FleetProxy, origin: Origin, query: ConfigQuery
) -> Iterator[tuple[inspect.ConfigResource, Encoded]]:
    """Yield the resources to which a proxy subscribes, sorted by type and name, each with its encoded bytes.

    For a disconnected proxy, yield all resources of its configuration. The field `content` is empty; `_with_content`
    fills it from the encoded bytes.
    """
    configuration = proxy.config.get() or {}
    refused = {(rejection.type_url, rejection.name): rejection.message.strip() for rejection in proxy.rejections()}
    for type_name, type_url in TYPES.items():
        config = configuration.get(type_url, NO_RESOURCES)
        subscription = proxy.session.subscriptions[type_url] if proxy.session else Subscription(wildcard=True)
        for name in sorted(wanted_names(subscription, config)) if query.type in {"", type_name} else ():
            if query.name in {"", name}:
                held, encoded = subscription.acknowledged.get(name), config[name]
                refusal = refused.get((type_url, name), "")
                yield (
                    inspect.ConfigResource(
                        type=type_name,
                        name=name,
                        object=own_key(origin(proxy.id, type_url, name)),
                        state=_resource_state(encoded, held, refusal),
                        version=encoded.digest,
                        held_version=held.digest if held else "",
                        message=refusal,
                    ),
                    encoded,
                )


def _with_content(resources: Sequence[tuple[inspect.ConfigResource, Encoded]]) -> tuple[inspect.ConfigResource, ...]:
    return tuple(
        structs.replace(resource, content=content(TYPES[resource.type], encoded)) for resource, encoded in resources
    )


def _resource_state(encoded: Encoded, held: AcknowledgedVersion | None, refusal: str) -> inspect.ResourceState:
    if refusal:
        return "Refused"
    return "Held" if held and held.digest == encoded.digest else "Pending"


def _owner(pod: MeshPod | None) -> Mapping[str, Any]:
    """Return the owner fields of a sidecar: its pod's ServiceAccount and workloads."""
    if pod is None:
        return {}
    workloads = tuple(f"{owner.kind}/{owner.name}" for owner in workloads_of(pod.metadata))
    return {"service_account": account_name(pod), "workloads": workloads}


def object_name(node_id: str) -> ObjectName:
    """Return the namespace and name of a proxy in the inspect API."""
    namespace, name = namespaced_name(node_id)
    return ObjectName(namespace=namespace, name=name)


def finding_of(finding: Finding) -> inspect.PublishedFinding:
    """Return a finding in the format of the API, named after its object and a digest of its content: `web.1a2b3c4d`."""
    about = finding.about
    digest = blake2b(f"{about}\n{finding.reason}\n{finding.field}\n{finding.message}".encode(), digest_size=_NAME_BYTES)
    return inspect.PublishedFinding(
        metadata=ObjectName(namespace=about.namespace or DEFAULT_NAMESPACE, name=f"{about.name}.{digest.hexdigest()}"),
        object=about,
        severity=finding.reason.severity,
        reason=finding.reason.value,
        field=finding.field,
        message=finding.message,
    )


def _revision(pod: MeshPod | None, installed: Container[str]) -> str:
    """Return the revision that renders the configuration of a pod's proxy; empty for the default one."""
    name = pod.metadata.annotations.get(REVISION, "") if pod else ""
    return name if name in installed else ""
