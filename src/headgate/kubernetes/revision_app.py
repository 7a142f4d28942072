"""Wires and runs a replica of a revision, as `headgate control-plane --revision` does.

It injects sidecars in the namespaces of its label. For the active control plane of the default revision, it renders the
configurations of their proxies and explains their requests. It writes no status, signs no certificate of a proxy, and has no streams.
"""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headgate.admission.chain import object_check
from headgate.admission.sidecar_containers import transparent_sidecars
from headgate.api.http_server import Server, drained, serve
from headgate.api.request_body import LARGEST_BODY, read_body
from headgate.api.serving_tls import follow_renewals, tls_context
from headgate.api.status import ApiError
from headgate.api.webhooks import Reviews, create_webhooks, no_warnings
from headgate.backoff import until_done
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.proxy_container import TRY_SOCKET
from headgate.errors import HeadgateError
from headgate.kubernetes.client import ApiServer, Client
from headgate.kubernetes.connection import CredentialSource
from headgate.kubernetes.issuers import issuers
from headgate.kubernetes.names import REVISION_PREFIX, WEBHOOK_PORT, revision_server
from headgate.kubernetes.namespace_limits import FollowedLimits
from headgate.kubernetes.options import Options, sidecar_options
from headgate.kubernetes.revisions import ControlPlaneTokens
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.serving_certificate import ServingCertificate
from headgate.kubernetes.sockets import listen
from headgate.kubernetes.store import ClusterStore
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.feed import Feed
from headgate.plane.renderings import EXPLAIN_PATH, RENDER_PATH, ConfigRenderer, ExplainRequest
from headgate.plane.snapshot_view import SnapshotView
from headgate.resources.registry import CLUSTER_KINDS

RESTORE_S = 10.0
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
LARGEST_REQUEST = 20 * LARGEST_BODY  # it may name all objects of a mesh
_MOST_REQUESTS = 2

log = logging.getLogger(__name__)


async def run(options: Options, credentials: CredentialSource) -> None:
    """Run a replica of a revision until canceled."""
    async with AsyncExitStack() as stack:
        client, reviews = [await stack.enter_async_context(Client(credentials)) for _ in range(2)]
        versions = ServedVersions(client, CLUSTER_KINDS)
        await versions.refresh()
        store = ClusterStore(client, versions, options.mesh.namespaces)
        feed, limits = Feed(store), FollowedLimits()
        issuer = issuers(options, store)[1]
        native = await versions.native_sidecars()
        containers = sidecar_options(options.image, options.mesh, native=native, revision=options.revision)
        host = HostProxies(try_sockets=lambda _: TRY_SOCKET)
        answers = _Answers(ConfigRenderer(options.revision, feed, host, options.settings), ApiServer(reviews))
        webhooks = create_webhooks(
            Reviews(
                transparent_sidecars(options.mesh.sidecars, containers, limits=limits),
                object_check(options.settings),
                no_warnings,
                lambda: SnapshotView(feed.snapshot.get() or Snapshot()),
            ),
            lambda: feed.snapshot.get() is not None,
            (
                Route(RENDER_PATH, answers.render, methods=["POST"]),
                Route(EXPLAIN_PATH, answers.explain, methods=["POST"]),
            ),
        )
        serving = ServingCertificate(issuer, (revision_server(options.revision),), options.settings.trust_domain)
        draining = asyncio.Event()
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(draining.set)
        tasks.create_task(versions.run(), name="served versions")
        tasks.create_task(feed.run(), name="feed")
        tasks.create_task(limits.run(store), name="limits of namespaces")
        certificate = await serving.first()
        for name, work in serving.work(store, certificate):
            tasks.create_task(work, name=name)
        tasks.create_task(_keep_bundle(client, options.revision, certificate), name="CA bundle")
        context = tls_context(certificate.get())
        tasks.create_task(follow_renewals(context, certificate), name="certificate of the server")
        server = Server(drained(webhooks, draining), ssl_context_factory=lambda *_: context)
        with listen(WEBHOOK_PORT) as listener:
            log.warning("replica %s of the revision %s serves now", options.pod, options.revision)
            await serve(server, listener)


class _Answers:
    """Answers the requests of the active control plane, which its token authenticates."""

    def __init__(self, renderer: ConfigRenderer, api: ApiServer) -> None:
        self._renderer = renderer
        self._tokens = ControlPlaneTokens(api)
        self._bodies = asyncio.Semaphore(_MOST_REQUESTS)

    async def render(self, request: Request) -> Response:
        """Return the configurations as MessagePack, or the status 401 without a valid token."""

        async def answer(body: bytes) -> bytes:
            return msgspec.msgpack.encode(await self._renderer.render(body))

        return await self._answer(request, answer)

    async def explain(self, request: Request) -> Response:
        """Return an explanation as JSON, or the status 401 without a valid token."""

        async def answer(body: bytes) -> bytes:
            explained = await self._renderer.explain(msgspec.msgpack.decode(body, type=ExplainRequest))
            return msgspec.json.encode(explained)

        return await self._answer(request, answer)

    async def _answer(self, request: Request, answer: Callable[[bytes], Awaitable[bytes]]) -> Response:
        try:
            if not await self._tokens.is_valid(request.headers.get("authorization", "")):
                return PlainTextResponse("only the control plane of the default revision may request this", 401)
            body = await read_body(request, LARGEST_REQUEST, self._bodies)
            return Response(await answer(body), media_type="application/octet-stream")
        except ApiError as error:
            return PlainTextResponse(str(error), error.code)
        except msgspec.DecodeError as error:
            return PlainTextResponse(f"the request is malformed: {error}", 400)
        except HeadgateError as error:
            return PlainTextResponse(str(error), 503)


async def _keep_bundle(client: Client, revision: str, certificate: Latest[Credential]) -> None:
    """Write the roots into the configuration of the revision's webhooks, after each change and every RESTORE_S seconds."""
    path = f"{CONFIGURATIONS}/{REVISION_PREFIX}{revision}"
    while True:
        change = certificate.next_change()
        write = partial(_write_bundle, client, path, certificate.get().roots)
        await until_done(write, f"the CA bundle of {path} can't be written", on=HeadgateError)
        try:
            async with asyncio.timeout(RESTORE_S):
                await change.wait()
        except TimeoutError:
            continue


async def _write_bundle(client: Client, path: str, roots: str) -> None:
    configuration = await client.get(path)
    bundle = base64.b64encode(roots.encode()).decode()
    places = [hook["clientConfig"] for hook in configuration.get("webhooks") or ()]
    if any(place.get("caBundle") != bundle for place in places):
        for place in places:
            place["caBundle"] = bundle
        await client.put(path, configuration)
