"""Wires and runs a replica of the control plane on a cluster, as `headgate control-plane` does."""

import asyncio
import logging
import time
from contextlib import AsyncExitStack

from headgate.admission.sidecar_containers import SidecarOptions
from headgate.envoy import stats_sink
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.keys import SecretKeyStore
from headgate.kubernetes.aggregated_apis import Sources, serve_apis
from headgate.kubernetes.client import ApiServer, Client
from headgate.kubernetes.connection import CredentialSource
from headgate.kubernetes.gateways import GatewayProxies
from headgate.kubernetes.informers import Informers
from headgate.kubernetes.lease import Lease, LeaseName
from headgate.kubernetes.names import LEASE, NAMESPACE, SERVER_NAMES, XDS_PORT
from headgate.kubernetes.options import Options
from headgate.kubernetes.registration import Registration
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.serving_certificate import ServingCertificate
from headgate.kubernetes.state_secrets import StateSecrets
from headgate.kubernetes.store import ClusterStore
from headgate.kubernetes.token_reviews import TokenReview
from headgate.kubernetes.webhooks import serve_webhooks
from headgate.latest import until
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Ports
from headgate.plane.control_plane import ControlPlane, ProxyOptions
from headgate.plane.loop import HostProxies
from headgate.plane.trust import Trust

COMPONENT = "headgate"

log = logging.getLogger(__name__)


async def run(options: Options, credentials: CredentialSource) -> None:
    """Run a replica until canceled. `credentials` are those for the API server.

    Raises LeaseLost when the replica can't renew the Lease and must stop.
    """
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(credentials))
        # The client for the Lease has its own connections, so that other requests can't delay a renewal.
        lease_client = await stack.enter_async_context(Client(credentials))
        versions = ServedVersions(client)
        await versions.refresh()
        store = ClusterStore(client, versions)
        lease = Lease(lease_client, LeaseName(NAMESPACE, LEASE), options.pod)
        stack.push_async_callback(lease.release)
        keys, api = SecretKeyStore(store), ApiServer(client)
        plane = ControlPlane(
            Ports(
                store,
                EventRecorder(store, COMPONENT, deletes_expired=False),
                lease.active,
                StateSecrets(client, lease.active),
            ),
            ProxyOptions(
                HostProxies(),
                TokenReview(api),
                stats_sink.reports_per_eviction(stats_sink.CLUSTER_SECONDS),
            ),
            options.settings,
            Trust(keys, options.settings),
        )
        serving = ServingCertificate(
            lambda: EmbeddedIssuer(SecretKeyStore(store), options.settings.trust_domain, clock=time.time),
            SERVER_NAMES,
            options.settings.trust_domain,
        )
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        tasks.create_task(versions.run(), name="served versions")
        for name, work in plane.work():
            tasks.create_task(work, name=name)
        certificate = await serving.first()
        tasks.create_task(serving.renew(certificate), name="serving certificate")
        sidecars = SidecarOptions(
            image=options.image, xds=f"{SERVER_NAMES[0]}:{XDS_PORT}", native=await versions.native_sidecars()
        )
        webhooks = serve_webhooks(options, sidecars, plane.live_state, certificate)
        tasks.create_task(webhooks, name="webhooks")
        tasks.create_task(lease.run(), name="lease")
        registration = Registration(store, client, options, certificate)
        await until(lease.active.get, lease.active)
        log.warning("replica %s is active now", options.pod)
        await plane.serve(f"0.0.0.0:{XDS_PORT}", certificate)
        stack.push_async_callback(plane.stop)
        tasks.create_task(GatewayProxies(store, sidecars).run(), name="proxies of Gateways")
        tasks.create_task(
            serve_apis(options, Sources(plane, Informers(store, tasks), versions), api, certificate),
            name="aggregated APIs",
        )
        await registration.run(plane.live_state.feed.snapshot)
