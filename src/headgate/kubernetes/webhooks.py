"""Serves the webhooks of injection and validation, over TLS."""

import asyncio
import ssl
import tempfile
from pathlib import Path

import msgspec

from headgate.admission.chain import object_check
from headgate.admission.sidecar_containers import SidecarOptions, inject_transparent_sidecars
from headgate.api.http_server import Server
from headgate.api.webhooks import Reviews, create_webhooks
from headgate.atomic_file import write_private
from headgate.compiler.snapshot import Snapshot
from headgate.kubernetes.options import WEBHOOK_PORT, XDS_PORT, Options
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.objects.ports import View
from headgate.plane.live_state import LiveState
from headgate.resources.meta import Key, Object, Resource


async def serve_webhooks(options: Options, live_state: LiveState, certificate: Latest[Credential]) -> None:
    """Serve until canceled. After a renewal, new connections get the new certificate."""
    sidecars = SidecarOptions(image=options.image, xds=f"{options.names[0]}:{XDS_PORT}")
    reviews = Reviews(
        inject_transparent_sidecars(options.sidecars, sidecars),
        object_check(options.settings),
        lambda obj: live_state.warnings_for(obj, dry_run=True),
        lambda: SnapshotView(live_state.feed.snapshot.get() or Snapshot()),
    )
    app = create_webhooks(reviews, lambda: live_state.loop.compiled.get() is not None)
    context = tls_context(certificate.get())
    server = Server(app, host="0.0.0.0", port=WEBHOOK_PORT, ssl_context_factory=lambda *_: context)  # noqa: S104 - pods listen on their address
    async with asyncio.TaskGroup() as tasks:
        renewing = tasks.create_task(_renew(context, certificate), name="certificate of the webhooks")
        try:
            await server.serve()
        finally:
            renewing.cancel()


async def _renew(context: ssl.SSLContext, certificate: Latest[Credential]) -> None:
    async for credential in certificate.changes():
        load(context, credential)


def tls_context(credential: Credential) -> ssl.SSLContext:
    """Return the TLS settings of a server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load(context, credential)
    return context


def load(context: ssl.SSLContext, credential: Credential) -> None:
    """Use a certificate for new connections. OpenSSL reads keys from files only."""
    with tempfile.TemporaryDirectory() as directory:
        chain, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        write_private(chain, credential.chain.encode())
        write_private(key, credential.key.reveal().encode())
        context.load_cert_chain(chain, key)


class SnapshotView(View):
    """The objects of a snapshot as admission steps read them."""

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
