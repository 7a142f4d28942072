"""TokenReviews of a real API server: the tokens that it accepts, and its messages for rejected tokens."""

import asyncio
import base64
import itertools
import json
import time

import grpc
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from tests.cluster.api_server import HEADGATE, ISSUER, UNPRIVILEGED
from tests.ports import free_port
from tests.xds.proxies import Proxy, ServerAuthority

from headgate.envoy.config import CLUSTER, Encoded
from headgate.errors import ProxyError
from headgate.kubernetes.client import ApiServer, Client
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.token_reviews import TokenReview
from headgate.latest import Latest
from headgate.xds.authentication import InvalidToken
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer

_numbers = itertools.count(1)


@pytest.fixture
def namespace(cluster):
    name = f"ns{next(_numbers)}"
    cluster.namespace(name)
    return name


@pytest.fixture
def reviews(cluster):
    return TokenReview(cluster.api(), uids_of(cluster))


def uids_of(cluster):
    """Return a function that returns the UID of a pod."""

    def uid_of(namespace, pod):
        answer = cluster.call("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")[1]
        return answer["metadata"].get("uid")

    return uid_of


async def refusal(verifier, node_id, token):
    with pytest.raises(InvalidToken) as refused:
        await verifier.verify(node_id, token)
    assert token not in str(refused.value)
    return str(refused.value)


def signed(key, claims):
    """Return a token signed with the API server's key."""
    parts = ({"alg": "RS256", "typ": "JWT"}, claims)
    said = ".".join(encoded(json.dumps(part).encode()) for part in parts)
    return f"{said}.{encoded(key.sign(said.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def encoded(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def claims_of(token):
    content = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))


async def test_a_token_is_accepted_for_its_pod_until_it_expires(cluster, namespace, reviews):
    cluster.pod(namespace, "web-1")
    token = cluster.token(namespace, "web-1")
    ends = await reviews.verify(f"sidecar/{namespace}/web-1", token)
    assert ends == claims_of(token)["exp"]
    assert 0 < ends - time.time() <= 600


async def test_another_pods_token_is_rejected(cluster, namespace, reviews):
    cluster.pod(namespace, "web-1")
    cluster.pod(namespace, "web-2")
    said = await refusal(reviews, f"sidecar/{namespace}/web-2", cluster.token(namespace, "web-1"))
    assert said == f"the token belongs to sidecar/{namespace}/web-1, not to sidecar/{namespace}/web-2"


async def test_the_token_of_a_deleted_pod_cant_be_replayed_even_under_its_old_name(cluster, namespace, reviews):
    uid = cluster.pod(namespace, "web-1")
    token = cluster.token(namespace, "web-1")
    cluster.delete_pod(namespace, "web-1")
    assert "no pod with the UID of this token" in await refusal(reviews, f"sidecar/{namespace}/web-1", token)
    late = TokenReview(cluster.api(), lambda *_: uid, clock=itertools.count(time.time(), 0.01).__next__)
    async with asyncio.timeout(60):
        while True:  # the API server notices the deletion after a moment
            try:
                await late.verify(f"sidecar/{namespace}/web-1", token)
            except InvalidToken as refused:
                assert "the API server does not accept" in str(refused)  # noqa: PT017 - the loop retries
                break
    cluster.pod(namespace, "web-1")
    for verifier, message in ((late, "does not accept"), (reviews, "no pod with the UID of this token")):
        assert message in await refusal(verifier, f"sidecar/{namespace}/web-1", token)
    await reviews.verify(f"sidecar/{namespace}/web-1", cluster.token(namespace, "web-1"))


async def test_a_token_for_another_audience_is_rejected(cluster, namespace, reviews):
    cluster.pod(namespace, "web-1")
    for audience in (ISSUER, "vault"):
        token = cluster.token(namespace, "web-1", [audience])
        said = await refusal(reviews, f"sidecar/{namespace}/web-1", token)
        assert said.startswith(f"the token is for {audience}: give the sidecar a projected serviceAccountToken")


async def test_a_token_for_several_audiences_with_headgates_is_accepted(cluster, namespace, reviews):
    cluster.pod(namespace, "web-1")
    token = cluster.token(namespace, "web-1", [ISSUER, "headgate"])
    assert await reviews.verify(f"sidecar/{namespace}/web-1", token)


async def test_a_token_that_is_not_bound_to_a_pod_is_rejected(cluster, namespace, reviews):
    said = await refusal(reviews, f"sidecar/{namespace}/web-1", cluster.token(namespace))
    assert "not bound to a pod: give the sidecar a projected serviceAccountToken with audience headgate" in said


async def test_an_expired_token_is_rejected_by_headgate_and_by_the_api_server(cluster, namespace, reviews):
    cluster.pod(namespace, "web-1")
    claims = claims_of(cluster.token(namespace, "web-1"))
    past = int(time.time()) - 3600
    key = serialization.load_pem_private_key((cluster.root / "sa.key").read_bytes(), None)
    token = signed(key, claims | {"iat": past - 600, "nbf": past - 600, "exp": past})
    node = f"sidecar/{namespace}/web-1"
    assert f"the token of {node} expired at " in await refusal(reviews, node, token)
    slow = TokenReview(cluster.api(), uids_of(cluster), clock=lambda: 0.0)
    assert "does not accept" in await refusal(slow, node, token)


async def test_a_forged_token_is_rejected(cluster, namespace, reviews):
    cluster.pod(namespace, "web-1")
    token = cluster.token(namespace, "web-1")
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    node = f"sidecar/{namespace}/web-1"
    assert "does not accept" in await refusal(reviews, node, signed(stranger, claims_of(token)))
    head, _, signature = token.split(".")
    other = cluster.token(namespace).split(".")[1]
    assert await refusal(reviews, node, f"{head}.{other}.{signature}")


@pytest.mark.parametrize("token", ["garbage", "a.b.c", "x" * 5000])
async def test_a_malformed_token_is_rejected(reviews, token):
    assert "token is" in await refusal(reviews, "sidecar/default/web-1", token)


async def test_the_error_without_permission_names_the_missing_role(cluster, namespace):
    cluster.pod(namespace, "web-1")
    token = cluster.token(namespace, "web-1")
    for account, code in ((UNPRIVILEGED, 403), ("no-token-at-all", 401)):
        with pytest.raises(ProxyError, match=rf"\({code}\): .* system:auth-delegator"):
            await TokenReview(cluster.api(account), uids_of(cluster)).verify(f"sidecar/{namespace}/web-1", token)


async def test_the_error_for_an_unreachable_api_server_names_its_address(cluster, namespace):
    cluster.pod(namespace, "web-1")
    token = cluster.token(namespace, "web-1")
    environment = cluster.environment | {"KUBERNETES_SERVICE_PORT": "1"}
    gone = ApiServer(Client(InCluster(environment, cluster.account(HEADGATE))))
    with pytest.raises(ProxyError, match=r"no API answers at https://127.0.0.1:1 \(Connection refused\)"):
        await TokenReview(gone, uids_of(cluster)).verify(f"sidecar/{namespace}/web-1", token)


async def test_an_api_server_with_an_untrusted_certificate_gets_no_token(cluster, namespace, tmp_path):
    cluster.pod(namespace, "web-1")
    token = cluster.token(namespace, "web-1")
    (tmp_path / "ca.crt").write_text(ServerAuthority().roots)
    (tmp_path / "token").write_text(HEADGATE)
    wrong = ApiServer(Client(InCluster(cluster.environment, tmp_path)))
    with pytest.raises(ProxyError, match="CERTIFICATE_VERIFY_FAILED"):
        await TokenReview(wrong, uids_of(cluster)).verify(f"sidecar/{namespace}/web-1", token)


async def test_a_sidecar_with_its_pods_token_is_served_over_tls(cluster, namespace, reviews):
    node = f"sidecar/{namespace}/web-1"
    cluster.pod(namespace, "web-1")
    token = cluster.token(namespace, "web-1")
    fleet, authority = Fleet(), ServerAuthority()
    fleet.expect(node).config.set({CLUSTER: {"a": Encoded(b"\x1a\x01a", "1")}})
    xds = XdsServer(fleet, reviews)
    address = f"localhost:{await xds.start(f'localhost:{free_port()}', Latest(authority.issue()))}"
    async with Proxy(address, node, token, roots=authority.roots) as proxy:
        await proxy.request()
        assert [item.name for item in (await proxy.receive()).resources] == ["a"]
    async with Proxy(address, f"sidecar/{namespace}/web-2", token, roots=authority.roots) as proxy:
        await proxy.request()
        assert (await proxy.ended())[0] == grpc.StatusCode.UNAUTHENTICATED
    await xds.stop()
