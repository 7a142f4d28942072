"""Wires and runs a replica of the control plane on a cluster, as `headgate control-plane` does."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

from headgate.admission.injection import Sidecars
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.envoy import stats_sink
from headgate.envoy.proxy_container import TRY_SOCKET
from headgate.kubernetes import sidecar_roots
from headgate.kubernetes.aggregated_apis import PROBE_EVENTS, Sources, serve_apis
from headgate.kubernetes.cert_manager import CERTIFICATE_REQUEST
from headgate.kubernetes.client import ApiServer, Client
from headgate.kubernetes.connection import CredentialSource
from headgate.kubernetes.gateways import WITH_PARAMETERS, GatewayProxies
from headgate.kubernetes.handover import end_conversions, hand_over, keep_conversions
from headgate.kubernetes.informers import Informers
from headgate.kubernetes.install.roles import roles
from headgate.kubernetes.issuers import issuers
from headgate.kubernetes.lease import Lease, LeaseName, hold
from headgate.kubernetes.missing_agents import AGENTS, PENDING, MissingAgents
from headgate.kubernetes.names import LEASE, NAMESPACE, SERVER_NAMES, XDS_PORT
from headgate.kubernetes.namespace_limits import FollowedLimits
from headgate.kubernetes.options import Options, sidecar_options
from headgate.kubernetes.permissions import (
    MissingPermissions,
    Reviewer,
    report_permissions,
)
from headgate.kubernetes.rate_limits import RequestLimits
from headgate.kubernetes.refused_pods import FAILED, RefusedPods
from headgate.kubernetes.registration import Registration
from headgate.kubernetes.revisions import InstalledRevisions, RevisionCalls, beside_revisions
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.service_gateways import ProxyImages, ServiceGateways
from headgate.kubernetes.serving_certificate import ServingCertificate
from headgate.kubernetes.state_secrets import StateSecrets
from headgate.kubernetes.store import ClusterStore, Selectors
from headgate.kubernetes.token_reviews import TokenReview, pod_uids
from headgate.kubernetes.webhooks import predicted_sidecars, serve_webhooks
from headgate.latest import Latest, until
from headgate.objects.events import CoreV1, EventRecorder, EventsV1
from headgate.objects.ports import Events, Ports, Reader, Store
from headgate.plane.control_plane import ControlPlane, ProxyOptions, Work
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.live_state import LiveState
from headgate.plane.metrics import MeshMetrics
from headgate.plane.predictions import PredictedControllers
from headgate.plane.revisions import RevisionFollower
from headgate.plane.trust import Trust
from headgate.resources.registry import CLUSTER_KINDS, EVENT
from headgate.rollout.controller import RolloutController
from headgate.rollout.expected import expected_objects

COMPONENT = "headgate"

log = logging.getLogger(__name__)


async def run(options: Options, credentials: CredentialSource) -> None:
    """Run a replica until canceled. `credentials` has those for the API server.

    Raises LeaseLost when the replica can't renew the Lease and must stop.
    """
    async with AsyncExitStack() as stack:
        missing = MissingPermissions(roles(options.mesh))
        clients = _clients(credentials, missing)
        client, lease_client, reviews = [await stack.enter_async_context(client) for client in clients]
        versions = _versions(client, options)
        await versions.refresh()
        selecting = partial(ClusterStore, client, versions, options.mesh.namespaces)
        store = selecting()
        lease, api = Lease(lease_client, LeaseName(NAMESPACE, LEASE), options.pod), ApiServer(reviews)
        trusted: Latest[str] = Latest("")
        issuer, issuer_of_servers = issuers(options, store)
        sidecars = sidecar_options(options.image, options.mesh, native=await versions.native_sidecars())
        injection = _Injection.of(options, sidecars, revisions := InstalledRevisions())
        state, events = StateSecrets(client, lease.active), _events(store, versions, options.pod)
        gateways = _Gateways.of(selecting, events, options, sidecars)
        ports = Ports(store, events, lease.active, state, gateways.findings, injection.findings)
        plane = ControlPlane(
            ports,
            _proxies(api),
            options.settings,
            Trust(issuer, options.settings, trusted),
            controllers=PredictedControllers(expected_objects, injection.predicted),
        )
        serving = ServingCertificate(issuer_of_servers, SERVER_NAMES, options.settings.trust_domain)
        last_tasks = await stack.enter_async_context(asyncio.TaskGroup())
        stack.push_async_exit(_Ending(plane, lease, lease_client, options.pod).end)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(plane.drain)
        draining = asyncio.Event()
        stack.callback(draining.set)
        tasks.create_task(versions.run(), name="served versions")
        tasks.create_task(report_permissions(Reviewer(reviews.post), missing), name="permissions")
        certificate = await serving.first()
        follower = await _followed(revisions, tasks, store, plane, RevisionCalls(credentials, certificate))
        tasks.create_task(follower.run(lease.active), name="renderings of revisions")
        injecting = injection.work(store, plane.live_state.feed.snapshot, selecting)
        for name, work in (*plane.work(), *injecting, *serving.work(store, certificate)):
            tasks.create_task(work, name=name)
        webhooks = serve_webhooks(options, injection.webhooks, plane.live_state, certificate, draining)
        last_tasks.create_task(webhooks, name="webhooks")
        tasks.create_task(keep_conversions(client, options.pod, plane.live_state.loop.compiled), name="conversions")
        tasks.create_task(hold(lease, client, reviews), name="lease")
        registration = Registration(selecting(sidecar_roots.SELECTORS), client, options, certificate, trusted)
        await until(lease.active.get, lease.active)
        log.warning("replica %s is active now", options.pod)
        registering = tasks.create_task(registration.run(plane.live_state.feed.snapshot), name="registration")
        metrics = MeshMetrics(plane, by_pod=options.mesh.series_by == "pod")
        events_of_probes = Informers(selecting(PROBE_EVENTS), tasks)
        sources = Sources(plane, metrics, Informers(store, tasks), events_of_probes, versions, missing, follower)
        await plane.serve(f"0.0.0.0:{XDS_PORT}", certificate)
        tasks.create_task(gateways.run(plane.live_state), name="gateways")
        tasks.create_task(RolloutController.of(ports, plane).run(), name="rollouts")
        tasks.create_task(serve_apis(options, sources, api, certificate), name="aggregated APIs")
        registration.serve()
        await registering


def _proxies(api: ApiServer) -> ProxyOptions:
    return ProxyOptions(
        HostProxies(try_sockets=lambda _: TRY_SOCKET),
        lambda snapshot: TokenReview(api, pod_uids(snapshot)),
        stats_sink.reports_per_eviction(stats_sink.CLUSTER_SECONDS),
    )


async def _followed(
    revisions: InstalledRevisions, tasks: asyncio.TaskGroup, store: Store, plane: ControlPlane, calls: RevisionCalls
) -> RevisionFollower:
    """Return what follows the installed revisions once they are known: from then on, the loop does not render for them."""
    tasks.create_task(revisions.run(store), name="revisions")
    await revisions.known.wait()
    follower = RevisionFollower(plane.live_state.loop, plane.live_state.feed, revisions.names, calls)
    follower.begin()
    return follower


class _Injection(NamedTuple):
    """How pods get sidecars by `webhooks`, and in predictions; their bounds, and the pods that the cluster refuses."""

    limits: FollowedLimits
    webhooks: Sidecars
    predicted: Sidecars
    refused: RefusedPods
    missing: MissingAgents
    revisions: InstalledRevisions

    @classmethod
    def of(cls, options: Options, sidecars: SidecarOptions, revisions: InstalledRevisions) -> "_Injection":
        limits = FollowedLimits()
        injecting = partial(transparent_sidecars, options.mesh.sidecars, sidecars, limits=limits)
        # Predictions count users of their own, so that the users of a node's pods stay evenly divided.
        predicted = beside_revisions(predicted_sidecars(options, injecting()), revisions.names, predicts=True)
        predicted = predicted._replace(image_of=lambda name: revisions.images.get(name, ""))
        webhooks = beside_revisions(injecting(), revisions.available)
        return cls(limits, webhooks, predicted, RefusedPods(predicted), MissingAgents(), revisions)

    @property
    def findings(self) -> Sequence[Latest[tuple[Finding, ...]]]:
        """The findings about pods that do not start, and about namespaces of missing revisions."""
        return self.refused.findings, self.missing.findings, self.revisions.findings

    def work(
        self, store: Reader, snapshot: Latest[Snapshot | None], selecting: Callable[[Selectors], Reader]
    ) -> Iterator[Work]:
        """Yield the tasks that follow the objects of `store`, and of readers that select some."""
        yield "limits of namespaces", self.limits.run(store)
        yield "refused pods", self.refused.run(store, snapshot, selecting(FAILED))
        yield "missing node agents", self.missing.run(selecting(PENDING), selecting(AGENTS))
        yield "missing revisions", self.revisions.find_missing(snapshot)


class _Gateways(NamedTuple):
    """The proxies of Gateways, and those behind Services."""

    proxies: GatewayProxies
    of_services: ServiceGateways

    @classmethod
    def of(
        cls, selecting: Callable[..., Store], events: Events, options: Options, sidecars: SidecarOptions
    ) -> "_Gateways":
        """Return the proxies of a cluster. `selecting` returns a store for selectors, or without any for all objects."""
        images = ProxyImages(sidecars, options.mesh.nginx_image)
        of_services = ServiceGateways(selecting(), events, images)
        return cls(GatewayProxies(selecting(WITH_PARAMETERS), sidecars), of_services)

    @property
    def findings(self) -> Sequence[Latest[tuple[Finding, ...]]]:
        """The findings about objects that request proxies."""
        return self.proxies.findings, self.of_services.findings

    async def run(self, live_state: LiveState) -> None:
        """Run the proxies until canceled."""
        of_services = self.of_services.run(live_state.loop.compiled, live_state.feed.snapshot)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.proxies.run(live_state.loop.compiled), name="proxies of Gateways")
            tasks.create_task(of_services, name="gateways of Services")


class _Ending(NamedTuple):
    """The end of a replica whose tasks have ended. Its webhooks still respond, and its proxies still have their streams.

    `client` is that of the Lease: when the Lease is lost, the requests of the other clients are aborted.
    """

    plane: ControlPlane
    lease: Lease
    client: Client
    pod: str

    async def end(self, reason: type[BaseException] | None, *_: object) -> None:
        """Release the Lease and the Service of conversions, wait for the next replica, and close the streams."""
        await self.lease.release()
        await end_conversions(self.client, self.pod)
        if reason is asyncio.CancelledError:
            await hand_over(was_active=self.lease.active.get())
        await self.plane.stop()


def _clients(credentials: CredentialSource, missing: MissingPermissions) -> Sequence[Client]:
    """Return the clients for objects, for the Lease, and for reviews of tokens and permissions.

    The Lease has its own connections and no limits, so that other requests can't delay a renewal. The same applies to
    reviews: with many statuses to write, sidecars that connect would have to wait.
    """
    limits = (RequestLimits(), None, None)
    return [Client(credentials, denied=missing.add, limits=request_limits) for request_limits in limits]


def _events(store: Store, versions: ServedVersions, pod: str) -> EventRecorder:
    """Return a recorder that writes Events with events.k8s.io/v1, or with the core group if the cluster lacks it."""
    is_served = (EVENT.group, EVENT.kind) in versions.current.get()
    version = EventsV1(pod) if is_served else CoreV1()
    return EventRecorder(store, COMPONENT, version=version, deletes_expired=False)


def _versions(client: Client, options: Options) -> ServedVersions:
    kinds = (*CLUSTER_KINDS, *([CERTIFICATE_REQUEST] if options.mesh.cert_manager_issuer else []))
    return ServedVersions(client, kinds)
