"""Serves the webhooks of injection, validation and conversion over TLS."""

import asyncio
from functools import partial

from headgate.admission.chain import object_check
from headgate.admission.injection import NAMESPACE_NAME, InjectionDecision, PodNamespace, Sidecars
from headgate.api.http_server import Server, drained, serve
from headgate.api.serving_tls import follow_renewals, tls_context
from headgate.api.webhooks import Reviews, create_webhooks
from headgate.compiler.snapshot import Snapshot
from headgate.kubernetes.names import WEBHOOK_PORT
from headgate.kubernetes.options import Options
from headgate.kubernetes.sockets import listen
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.plane.live_state import LiveState
from headgate.plane.snapshot_view import SnapshotView
from headgate.plane.write_warnings import warnings_before_write
from headgate.resources.meta import Object


def predicted_sidecars(options: Options, injecting: Sidecars) -> Sidecars:
    """Return how a cluster adds sidecars to pods, for plans and explanations. `injecting` is how the webhooks add them.

    In a mesh of some namespaces, the API server calls the webhooks only for namespaces with a label of their name.
    """

    def decide(pod: Object, around: PodNamespace) -> InjectionDecision:
        if options.mesh.namespaces and NAMESPACE_NAME not in around.labels:
            return InjectionDecision("NamespaceName", NAMESPACE_NAME)
        return injecting.decide(pod, around)

    return injecting._replace(decide=decide)


async def serve_webhooks(
    options: Options,
    sidecars: Sidecars,
    live_state: LiveState,
    certificate: Latest[Credential],
    draining: asyncio.Event,
) -> None:
    """Serve the webhooks until canceled. New connections use the newest certificate.

    Once `draining` is set, each connection is closed after its next response. The API server does not repeat a request
    whose connection is closed.
    """
    reviews = Reviews(
        sidecars,
        object_check(options.settings),
        partial(warnings_before_write, live_state),
        lambda: SnapshotView(live_state.feed.snapshot.get() or Snapshot()),
    )
    app = create_webhooks(reviews, lambda: live_state.loop.compiled.get() is not None)
    context = tls_context(certificate.get())
    server = Server(drained(app, draining), ssl_context_factory=lambda *_: context)
    with listen(WEBHOOK_PORT) as listener:
        async with asyncio.TaskGroup() as tasks:
            renewing = tasks.create_task(follow_renewals(context, certificate), name="certificate of the webhooks")
            try:
                await serve(server, listener)
            finally:
                renewing.cancel()
