"""Serves the metrics API and the inspect API of the active control plane to the cluster's API server."""

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from headgate.admission.injection import Decision, PodNamespace
from headgate.admission.sidecar_containers import decide_transparent
from headgate.api.aggregated_server import create_aggregated_app, refresh_request_header_config, serve_aggregated
from headgate.api.delegated_auth import DelegatedAuthorizer, RequestHeaderConfig, read_request_header_config
from headgate.api.inspect.handlers import InspectApi
from headgate.api.metrics.handlers import MetricsApi
from headgate.errors import ProxyError
from headgate.kubernetes.client import ApiServer
from headgate.kubernetes.install.manifests import NAMESPACE_NAME
from headgate.kubernetes.names import API_PORT
from headgate.kubernetes.options import Options
from headgate.kubernetes.permissions import MissingPermissions, describe
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.sockets import listen
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.objects.ports import Lister
from headgate.plane.control_plane import ControlPlane
from headgate.plane.inspector import Inspector
from headgate.plane.metrics import MeshMetrics
from headgate.resources.inspect import ProxyProcess
from headgate.resources.mesh_status import PodCounts
from headgate.resources.meta import Object

RETRY_S = 5.0

log = logging.getLogger(__name__)


class ClusterHost:
    """Implements `plane.inspector.Host` for a cluster, whose kubelets run the pods and proxies."""

    def __init__(self, versions: ServedVersions, permissions: MissingPermissions, options: Options) -> None:
        self._versions = versions
        self._permissions = permissions
        self._sidecars = options.sidecars
        self._namespaces = options.namespaces

    def processes(self) -> Mapping[str, ProxyProcess]:
        """Return an empty mapping, because headgate starts no proxies on a cluster."""
        return {}

    def pods(self) -> PodCounts | None:
        """Return None, because headgate runs no pods on a cluster."""
        return None

    def missing_kinds(self) -> tuple[str, ...]:
        """Return the kinds whose CustomResourceDefinitions are not installed."""
        return tuple(sorted(f"{kind.plural}.{kind.group}" for kind in self._versions.missing if kind.is_custom))

    def problems(self) -> tuple[str, ...]:
        """Return a sentence for each missing permission."""
        return describe(self._permissions.current.get(), self._permissions.roles)

    def decide(self, pod: Object, around: PodNamespace) -> Decision:
        """Decide whether a pod gets a transparent sidecar.

        In a mesh of some namespaces, the API server calls the webhooks only for namespaces with a label of their name.
        """
        if self._namespaces and NAMESPACE_NAME not in around.labels:
            return Decision("NamespaceName", NAMESPACE_NAME)
        return decide_transparent(pod, self._sidecars, around)


class Sources(NamedTuple):
    """The sources of both APIs: the control plane, its metrics, lists of objects, served kinds and missing permissions.

    The metrics count from their creation on, so create them before proxies connect.
    """

    plane: ControlPlane
    metrics: MeshMetrics
    objects: Lister
    versions: ServedVersions
    permissions: MissingPermissions


async def serve_apis(options: Options, sources: Sources, api: ApiServer, certificate: Latest[Credential]) -> None:
    """Serve both APIs until canceled, once the API server's request-header configuration can be read."""
    plane = sources.plane
    config = Latest(await _request_header_config(api))
    closing = asyncio.Event()
    host = ClusterHost(sources.versions, sources.permissions, options)
    app = create_aggregated_app(
        MetricsApi(sources.objects, options.metrics_source or plane.traffic.windows, settings=options.settings),
        config,
        DelegatedAuthorizer(api),
        InspectApi(Inspector(plane.live_state, host), closing, sources.metrics.families),
    )
    listener = listen(API_PORT)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sources.metrics.run(), name="push durations")
            tasks.create_task(refresh_request_header_config(api, config), name="request-header configuration")
            tasks.create_task(serve_aggregated(app, listener, certificate, config), name="aggregated APIs")
    finally:
        closing.set()
        listener.close()


async def _request_header_config(api: ApiServer) -> RequestHeaderConfig:
    while True:
        try:
            return await read_request_header_config(api)
        except ProxyError as error:
            log.warning("the aggregated APIs can't be served yet, next attempt in %g s: %s", RETRY_S, error)
            await asyncio.sleep(RETRY_S)
