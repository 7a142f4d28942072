"""A program that serves the webhooks in plaintext and over TLS, for tests that measure its memory. It prints its ports."""

import asyncio
import contextlib
import socket
import sys
from pathlib import Path

import uvloop

from headgate.admission.chain import object_check
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.api.certificate import certificate_in
from headgate.api.http_server import Server, serve
from headgate.api.webhooks import Reviews, create_webhooks
from headgate.compiler.snapshot import Snapshot
from headgate.plane.snapshot_view import SnapshotView
from headgate.resources.meta import Object
from headgate.settings import DEFAULTS


async def _without_warnings(
    old: Object | None, new: Object | None, *, dry_run: bool, orphan: bool = False
) -> tuple[str, ...]:
    del old, new, dry_run
    return ()


async def main(directory: Path) -> None:
    """Serve until standard input ends."""
    reviews = Reviews(
        transparent_sidecars("labelled", SidecarOptions(image="i", xds="x:1")),
        object_check(DEFAULTS),
        _without_warnings,
        lambda: SnapshotView(Snapshot()),
    )
    app = create_webhooks(reviews, lambda: True)
    certificate = certificate_in(directory)
    with socket.create_server(("127.0.0.1", 0)) as plain, socket.create_server(("127.0.0.1", 0)) as tls:
        secured = Server(app, ssl_certfile=certificate.path, ssl_keyfile=certificate.key_path)
        serving = [asyncio.ensure_future(serve(Server(app), plain)), asyncio.ensure_future(serve(secured, tls))]
        sys.stdout.write(f"{plain.getsockname()[1]} {tls.getsockname()[1]}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        for task in serving:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
