"""Serves the webhooks of injection, validation and conversion over TLS."""

import asyncio

import msgspec

from headgate.admission.chain import object_check
from headgate.admission.sidecar_containers import SidecarOptions, inject_transparent_sidecars
from headgate.api.http_server import Server
from headgate.api.serving_tls import follow_renewals, tls_context
from headgate.api.webhooks import Reviews, create_webhooks
from headgate.compiler.snapshot import Snapshot
from headgate.kubernetes.names import WEBHOOK_PORT
from headgate.kubernetes.options import Options
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.objects.ports import View
from headgate.plane.live_state import LiveState
from headgate.resources.meta import Key, Object, Resource


async def serve_webhooks(
    options: Options, sidecars: SidecarOptions, live_state: LiveState, certificate: Latest[Credential]
) -> None:
    """Serve the webhooks until canceled. New connections use the newest certificate."""
    reviews = Reviews(
        inject_transparent_sidecars(options.sidecars, sidecars),
        object_check(options.settings),
        live_state.warnings_before_write,
        lambda: SnapshotView(live_state.feed.snapshot.get() or Snapshot()),
    )
    app = create_webhooks(reviews, lambda: live_state.loop.compiled.get() is not None)
    context = tls_context(certificate.get())
    server = Server(app, host="0.0.0.0", port=WEBHOOK_PORT, ssl_context_factory=lambda *_: context)  # noqa: S104 - a pod must listen on its network address
    async with asyncio.TaskGroup() as tasks:
        renewing = tasks.create_task(follow_renewals(context, certificate), name="certificate of the webhooks")
        try:
            await server.serve()
        finally:
            renewing.cancel()


class SnapshotView(View):
    """Implements `objects.ports.View` with the objects of a snapshot, for admission steps."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._objects = snapshot.objects

    def get(self, key: Key) -> Object | None:
        """Return an object; None if it does not exist."""
        found = self._objects.get(key)
        return _object(found) if found else None

    def select(self, group: str, kind: str, namespace: str) -> list[Object]:
        """Return the objects of a kind in a namespace."""
        return [
            _object(item)
            for key, item in self._objects.items()
            if (key.group, key.kind, key.namespace) == (group, kind, namespace)
        ]


def _object(resource: Resource) -> Object:
    found: Object = msgspec.to_builtins(resource)
    return {"metadata": {}, **found}
