"""Serves the metrics API and the inspect API of the active control plane to the cluster's API server."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headgate.api.aggregated_server import create_aggregated_app, refresh_request_header_config, serve_aggregated
from headgate.api.computed_groups import Handlers
from headgate.api.delegated_auth import DelegatedAuthorizer, RequestHeaderConfig, read_request_header_config
from headgate.api.inspect.handlers import InspectApi
from headgate.api.metrics.handlers import MetricsApi
from headgate.backoff import until_done
from headgate.errors import ProxyError, StoreError
from headgate.kubernetes.client import ApiServer
from headgate.kubernetes.names import API_PORT
from headgate.kubernetes.options import Options
from headgate.kubernetes.permissions import MissingPermissions, describe
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.sockets import listen
from headgate.kubernetes.store import STATUS_KINDS, Selectors
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.objects.ports import Lister
from headgate.plane.control_plane import ControlPlane
from headgate.plane.inspector import Inspector
from headgate.plane.mesh_state import HostState
from headgate.plane.metrics import MeshMetrics
from headgate.plane.probe_failures import UNHEALTHY
from headgate.plane.revisions import RevisionFollower
from headgate.plane.workload_readiness import PodReports, workload_counts
from headgate.resources.inspect import ProxyProcess
from headgate.resources.mesh_status import MeshProblem, WorkloadCounts
from headgate.resources.meta import Object
from headgate.resources.registry import EVENT
from headgate.telemetry.prometheus_source import traffic_source

EVENTS_S = 2.0
"""The longest time that an answer waits for the first list of Events, which only add a detail."""
PROBE_EVENTS: Selectors = {(EVENT.group, EVENT.kind): {"fieldSelector": f"reason={UNHEALTHY}"}}
"""The selectors of the `kubernetes.store.ClusterStore` with the Events about failed probes."""


class ClusterHost:
    """Implements `plane.inspector.Host` for a cluster, whose kubelets run the pods and proxies."""

    def __init__(self, sources: "Sources") -> None:
        self._versions = sources.versions
        self._permissions = sources.permissions
        self._objects, self._events = sources.objects, sources.probe_events
        self._revisions = sources.revisions.problems
        self._events_wait_s = EVENTS_S

    def processes(self) -> Mapping[str, ProxyProcess]:
        """Return an empty mapping, because headgate starts no proxies on a cluster."""
        return {}

    async def state(self) -> HostState:
        """Return the workloads with sidecars, the kinds without a CustomResourceDefinition, and the problems of the installation."""
        missing = tuple(sorted(f"{kind.plural}.{kind.group}" for kind in self._versions.missing if kind.is_custom))
        texts = describe(self._permissions.current.get(), self._permissions.roles)
        problems = [MeshProblem(reason="PermissionMissing", message=text) for text in texts]
        for name, text in sorted(self._revisions.get().items()):
            message = f"the revision {name} renders no configuration, so its proxies keep theirs: {text}"
            problems.append(MeshProblem(reason="RevisionUnavailable", message=message))
        return HostState(workloads=await self._workloads(), missing_kinds=missing, problems=tuple(problems))

    async def _workloads(self) -> WorkloadCounts | None:
        try:
            pods = (await self._objects.list("", "Pod")).items
            workloads = [obj for kind in STATUS_KINDS for obj in (await self._objects.list(*kind)).items]
        except StoreError:  # a missing permission, which `problems` has, or an API server that does not answer
            return None
        reports = PodReports(events=await self.probe_events())
        return workload_counts(pods, workloads, now=time.time(), reports=reports, only_meshed=True)

    async def pods(self, namespace: str) -> Sequence[Object]:
        """Return the pods of a namespace. Raises Unavailable."""
        return list((await self._objects.list("", "Pod", namespace)).items)

    async def probe_events(self) -> Sequence[Object]:
        """Return the Events about failed probes; none if they can't be read.

        Only the first call waits for them: without the permission, each answer would be late.
        """
        try:
            async with asyncio.timeout(self._events_wait_s):
                return list((await self._events.list(EVENT.group, EVENT.kind)).items)
        except (StoreError, TimeoutError):
            self._events_wait_s = 0
            return ()


class Sources(NamedTuple):
    """The sources of both APIs: the control plane, its metrics, lists of objects, of Events about failed probes, served kinds,
    missing permissions, and the other revisions.

    The metrics count from their creation on, so create them before proxies connect.
    """

    plane: ControlPlane
    metrics: MeshMetrics
    objects: Lister
    probe_events: Lister
    versions: ServedVersions
    permissions: MissingPermissions
    revisions: RevisionFollower


async def serve_apis(options: Options, sources: Sources, api: ApiServer, certificate: Latest[Credential]) -> None:
    """Serve both APIs until canceled, once the API server's request-header configuration can be read."""
    plane = sources.plane
    config = Latest(await _request_header_config(api))
    closing = asyncio.Event()
    source = traffic_source(options.mesh, plane.traffic.windows)
    inspector = Inspector(
        plane.live_state,
        ClusterHost(sources),
        explain_by_revision=sources.revisions.explain,
        traffic=plane.traffic_answers(sources.objects, source),
    )
    app = create_aggregated_app(
        Handlers(
            MetricsApi(sources.objects, source, settings=options.settings),
            InspectApi(inspector, closing, sources.metrics.families),
        ),
        config,
        DelegatedAuthorizer(api),
    )
    listener = listen(API_PORT)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sources.metrics.run(), name="push durations")
            tasks.create_task(refresh_request_header_config(api, config), name="request-header configuration")
            tasks.create_task(serve_aggregated(app, listener, certificate, config, closing.set), name="aggregated APIs")
    finally:
        closing.set()
        listener.close()


async def _request_header_config(api: ApiServer) -> RequestHeaderConfig:
    return await until_done(
        lambda: read_request_header_config(api), "the aggregated APIs can't be served yet", on=ProxyError
    )
