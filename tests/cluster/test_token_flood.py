"""A client that sends thousands of unsigned tokens: it delays no proxy, and the API server reviews few of them."""

import asyncio
import base64
import itertools
import json
import time
from collections import Counter
from contextlib import asynccontextmanager

import grpc
import pytest
from tests.ports import free_port
from tests.xds.proxies import NAME, Proxy, ServerAuthority

from headgate.envoy import pb
from headgate.envoy.config import CLUSTER, Encoded
from headgate.kubernetes.token_reviews import MAX_CONCURRENT_REVIEWS, TokenReview
from headgate.latest import Latest
from headgate.xds.fleet import Fleet
from headgate.xds.server import METHOD, XdsServer

TOKENS = 1500
PODS = 20
CONNECTIONS, STREAMS = 4, 24
HOSTILE = "127.0.0.2"
NAMESPACE = "flood"
TRUE = f"sidecar/{NAMESPACE}/true"


class CountedReviews:
    """An API server with the reviews that it has done."""

    def __init__(self, api):
        self.api, self.reviews = api, 0

    async def create(self, path, body):
        self.reviews += 1
        return await self.api.create(path, body)


class Statuses:
    """How streams have ended: the number of streams by status, and an event of the first one."""

    def __init__(self):
        self.counts = Counter()
        self.has_any = asyncio.Event()

    def add(self, code):
        self.counts[code] += 1
        self.has_any.set()


def unsigned(pod, uid, number):
    """Return a token with the claims of a pod's token, and an invalid signature."""
    account = f"system:serviceaccount:{NAMESPACE}:web"
    bound = {"namespace": NAMESPACE, "pod": {"name": pod, "uid": uid}, "serviceaccount": {"name": "web", "uid": "1"}}
    claims = {"aud": ["headgate"], "exp": time.time() + 600, "sub": account, "kubernetes.io": bound}
    parts = (json.dumps({"alg": "RS256"}), json.dumps(claims), str(number))
    return ".".join(base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in parts)


@asynccontextmanager
async def relay(port):
    """Forward connections to a port from the address HOSTILE; yield the port that they go to."""

    async def copy(reader, writer):
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def forward(reader, writer):
        try:
            outward = await asyncio.open_connection("127.0.0.1", port, local_addr=(HOSTILE, 0))
            await asyncio.gather(copy(reader, outward[1]), copy(outward[0], writer))
        finally:
            ended.release()

    ended = asyncio.Semaphore(0)
    async with await asyncio.start_server(forward, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        for _ in range(CONNECTIONS):
            await ended.acquire()  # the client has closed its connections


@pytest.fixture(scope="module")
def uids(cluster):
    """The UIDs of the pods, by name."""
    cluster.namespace(NAMESPACE)
    return {name: cluster.pod(NAMESPACE, name) for name in ("true", *(f"web-{number}" for number in range(PODS)))}


class Server:
    """An xDS server with the reviews of a real API server. Its clock stands still, so that no rejection is forgotten."""

    def __init__(self, cluster, uids):
        now = time.time()
        self.counted = CountedReviews(cluster.api())
        self.authority = ServerAuthority()
        self.fleet = Fleet()
        self.fleet.expect(TRUE).config.set({CLUSTER: {"a": Encoded(b"\x1a\x01a", "1")}})
        reviews = TokenReview(self.counted, lambda _namespace, name: uids.get(name), clock=lambda: now)
        self.xds = XdsServer(self.fleet, reviews)
        self.port = 0

    async def start(self):
        self.port = await self.xds.start(f"127.0.0.1:{free_port()}", Latest(self.authority.issue()))

    async def send(self, port, tokens, statuses):
        """Open connections, and streams with node IDs and tokens until there are none left; record the statuses."""
        options = [("grpc.ssl_target_name_override", NAME), ("grpc.use_local_subchannel_pool", 1)]
        credentials = grpc.ssl_channel_credentials(self.authority.roots.encode())
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONNECTIONS):
                channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options)
                tasks.create_task(self._send(channel, tokens, statuses))

    async def _send(self, channel, tokens, statuses):
        async def stream():
            for node, token in tokens:
                request = pb.DeltaDiscoveryRequest(node=pb.Node(id=node), type_url=CLUSTER).SerializeToString()
                metadata = [("authorization", f"Bearer {token}")]
                statuses.add(await channel.stream_stream(METHOD)(iter([request]), metadata=metadata).code())

        await channel.channel_ready()
        await asyncio.gather(*(stream() for _ in range(STREAMS)))
        await channel.close()


@pytest.fixture
async def server(cluster, uids):
    started = Server(cluster, uids)
    await started.start()
    yield started
    await started.xds.stop()


async def test_a_proxy_is_authenticated_while_unsigned_tokens_of_real_pods_arrive(cluster, uids, server):
    """The client knows the UIDs of pods, which only users with access to pods do."""
    is_authenticated = asyncio.Event()

    def tokens():
        for number in itertools.count():
            if number >= TOKENS and is_authenticated.is_set():
                return
            name = f"web-{number % PODS}"
            yield f"sidecar/{NAMESPACE}/{name}", unsigned(name, uids[name], number)

    token, statuses = cluster.token(NAMESPACE, "true"), Statuses()
    async with relay(server.port) as hostile:
        flood = asyncio.create_task(server.send(hostile, tokens(), statuses))
        await statuses.has_any.wait()
        async with Proxy(f"127.0.0.1:{server.port}", TRUE, token, roots=server.authority.roots) as proxy:
            await proxy.request()
            assert [item.name for item in (await proxy.receive()).resources] == ["a"]
        is_authenticated.set()
        await flood
    assert statuses.counts.keys() <= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE}
    assert server.counted.reviews <= PODS * MAX_CONCURRENT_REVIEWS + 1


async def test_node_ids_that_no_pod_has_and_guessed_uids_are_not_reviewed(uids, server):
    names = [f"{kind}-{number % PODS}" for number, kind in enumerate(("web", "other") * 100)]
    tokens = [(f"sidecar/{NAMESPACE}/{name}", unsigned(name, str(n), n)) for n, name in enumerate(names)]
    statuses = Statuses()
    await server.send(server.port, iter(tokens), statuses)
    assert statuses.counts == {grpc.StatusCode.UNAUTHENTICATED: len(tokens)}
    assert server.counted.reviews == 0
