"""Verification of ServiceAccount tokens: local checks, the TokenReview, and the API server's answers."""

import base64
import json

import pytest

from headgate.compiler.snapshot import Snapshot
from headgate.errors import ProxyError
from headgate.kubernetes.token_reviews import MAX_REJECTIONS, PATH, REJECTION_SECONDS, TokenReview, pod_uids
from headgate.latest import Latest
from headgate.resources.core.pod import MeshPod
from headgate.resources.meta import Key, Metadata
from headgate.xds.authentication import InvalidToken

WEB_1, WEB_2 = "sidecar/shop/web-1", "sidecar/shop/web-2"
USER = "system:serviceaccount:shop:web"
NOW, ENDS = 1_800_000_000.0, 1_800_003_600
POD = "authentication.kubernetes.io/pod-name"


def jwt(claims):
    parts = ({"alg": "RS256"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJl"])


def claims(*, pod="web-1", namespace="shop", uid="2", **more):
    bound = {"namespace": namespace, "serviceaccount": {"name": "web", "uid": "1"}}
    if pod:
        bound["pod"] = {"name": pod, "uid": uid}
    return {"aud": ["headgate"], "exp": ENDS, "sub": USER, "kubernetes.io": bound} | more


def good(**more):
    extra = {POD: ["web-1"]}
    return {"authenticated": True, "audiences": ["headgate"], "user": {"username": USER, "extra": extra}} | more


class Api:
    """A fake API server with one answer, which records the requests."""

    def __init__(self, status=None, error=None):
        self.status = good() if status is None else status
        self.error = error
        self.asked = []

    async def create(self, path, body):
        self.asked.append((path, body))
        if self.error:
            raise self.error
        return {"kind": "TokenReview", "status": self.status}


UIDS = {("shop", "web-1"): "2", ("shop", "web-2"): "2", ("headgate-system", "web-1"): "2"}


def uid_of(namespace, pod):
    return UIDS.get((namespace, pod))


async def check(api, token, node_id=WEB_1):
    return await TokenReview(api, uid_of, clock=lambda: NOW).verify(node_id, token)


async def refusal(api, token, node_id=WEB_1):
    with pytest.raises(InvalidToken) as refused:
        await check(api, token, node_id)
    assert not token or token not in str(refused.value)
    assert str(refused.value).isprintable()
    return str(refused.value)


async def test_a_pods_token_authenticates_its_sidecar_until_it_expires():
    api, token = Api(), jwt(claims())
    assert await check(api, token) == ENDS
    ((path, body),) = api.asked
    assert path == PATH
    assert body["spec"] == {"token": token, "audiences": ["headgate"]}


async def test_only_a_pod_with_the_gateways_account_authenticates_a_gateway():
    """The account is reserved, and only the control plane creates pods in its namespace."""
    user = "system:serviceaccount:headgate-system:gateway"
    token = jwt(claims(namespace="headgate-system", sub=user))
    assert await check(Api(good(user={"username": user})), token, "gateway/web-1") == ENDS
    for subject, namespace in ((USER, "shop"), ("system:serviceaccount:headgate-system:web", "headgate-system")):
        token = jwt(claims(namespace=namespace, sub=subject))
        assert "gateway/web-1" in await refusal(Api(good(user={"username": subject})), token, "gateway/web-1")


async def test_a_review_without_the_pods_name_is_accepted():
    assert await check(Api(good(user={"username": USER})), jwt(claims())) == ENDS


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (jwt(claims(pod="web-2")), f"the token belongs to {WEB_2}, not to {WEB_1}"),
        (
            jwt(claims(namespace="bank", sub="system:serviceaccount:bank:web")),
            "the token belongs to sidecar/bank/web-1",
        ),
        (jwt(claims(namespace="bank")), "not a ServiceAccount token"),
        (jwt(claims(aud=["vault", "x\n"])), r"the token is for 'vault, x\n': give the sidecar"),
        (jwt(claims(aud="https://kubernetes.default.svc")), "the token is for https://kubernetes.default.svc: give"),
        (jwt(claims(aud=[])), "the token is for '': give"),
        (jwt(claims()).rpartition(".")[0] + ".", "not a ServiceAccount token"),
        ("e30." + jwt(claims()).partition(".")[2], "not a ServiceAccount token"),
        (jwt(claims(uid="3")), f"{WEB_1} has no pod with the UID of this token; if the pod is new, the next attempt"),
        (jwt(claims(pod="x\n\x1b[2J" * 100)), "not to sidecar/shop/web-1"),
        (jwt(claims(exp=NOW - 60)), f"the token of {WEB_1} expired at 2027-01-15T07:59:00Z"),
        (jwt(claims(pod="")), "not bound to a pod: give the sidecar a projected serviceAccountToken"),
        (jwt(claims(exp=-1e300)), "not a ServiceAccount token"),
        (jwt(claims(exp=1e300)), "not a ServiceAccount token"),
        (jwt({"sub": USER, "exp": ENDS}), "not a ServiceAccount token"),
        (jwt([]), "not a ServiceAccount token"),
        ("a.ä.c", "not a ServiceAccount token"),
        ("a.b.c", "not a ServiceAccount token"),
        ("abc", "malformed: it is not a JSON Web Token"),
    ],
)
async def test_an_obviously_invalid_token_is_rejected_without_a_review(token, said):
    api = Api()
    assert said in await refusal(api, token)
    assert api.asked == []


async def test_a_token_that_the_api_server_rejects_is_rejected_with_its_message():
    token = jwt(claims())
    api = Api({"authenticated": False, "error": f"{token[:9]}: service account token has been invalidated"})
    assert "service account token has been invalidated" in await refusal(api, token)
    assert "no reason" in await refusal(Api({}), token)


async def test_a_token_in_the_api_servers_error_is_redacted():
    token = jwt(claims())
    assert "..." in await refusal(Api({"error": f"invalid bearer token {token}"}), token)


@pytest.mark.parametrize("audiences", [[], ["https://kubernetes.default.svc"]])
async def test_a_token_for_another_audience_is_rejected(audiences):
    said = await refusal(Api(good(audiences=audiences)), jwt(claims()))
    assert "audience headgate" in said


@pytest.mark.parametrize(
    "user",
    [
        {"username": "admin"},
        {"username": "system:serviceaccount:bank:web"},
        {"username": "system:serviceaccount:shop:other"},
        {"username": "shop:web"},
        {"username": USER, "extra": {POD: ["web-2"]}},
        {"username": USER, "extra": {POD: []}},
        {},
    ],
)
async def test_a_review_that_contradicts_the_claims_rejects_the_token(user):
    assert "the API server says" in await refusal(Api(good(user=user)), jwt(claims()))


@pytest.mark.parametrize("status", [{"authenticated": "yes"}, [], {"authenticated": True, "user": "web"}])
async def test_a_malformed_review_is_an_error(status):
    with pytest.raises(ProxyError, match="not a TokenReview"):
        await check(Api(status), jwt(claims()))


async def test_an_unreachable_api_server_does_not_make_a_token_invalid():
    with pytest.raises(ProxyError, match="no route") as raised:
        await check(Api(error=ProxyError("no route")), jwt(claims()))
    assert not isinstance(raised.value, InvalidToken)


async def test_a_token_of_no_pod_and_one_with_another_uid_get_the_same_answer_without_a_review():
    """Clients without a valid token must not learn which pods exist."""
    api = Api()
    answers = [
        (await refusal(api, jwt(claims(pod=pod, uid="3")), f"sidecar/shop/{pod}")).replace(pod, "POD")
        for pod in ("web-1", "web-9")
    ]
    assert answers[0] == answers[1]
    assert api.asked == []


async def test_a_pod_that_the_snapshot_has_later_is_authenticated_then():
    snapshot = Latest(None)
    reviews = TokenReview(Api(), pod_uids(snapshot), clock=lambda: NOW)
    for newest in (None, Snapshot(), snapshot_of_pod(uid="1")):
        snapshot.set(newest)
        with pytest.raises(InvalidToken, match="no pod with the UID"):
            await reviews.verify(WEB_1, jwt(claims()))
    snapshot.set(snapshot_of_pod(uid="2"))
    assert await reviews.verify(WEB_1, jwt(claims())) == ENDS


def snapshot_of_pod(*, uid):
    return Snapshot(
        1, {Key("", "Pod", "shop", "web-1"): MeshPod(metadata=Metadata(name="web-1", namespace="shop", uid=uid))}
    )


async def test_after_a_rejection_the_pods_next_token_is_reviewed_seconds_later():
    now = NOW
    api = Api({"authenticated": False, "error": "not yet"})
    reviews = TokenReview(api, uid_of, clock=lambda: now)
    for number in range(3):
        with pytest.raises(InvalidToken, match="not yet"):
            await reviews.verify(WEB_1, jwt(claims(iat=number)), address="10.0.0.1")
    assert len(api.asked) == 1
    now += REJECTION_SECONDS
    api.status = good()
    assert await reviews.verify(WEB_1, jwt(claims()), address="10.0.0.1") == ENDS


async def test_a_rejection_for_one_address_does_not_concern_another():
    api = Api({"authenticated": False})
    reviews = TokenReview(api, uid_of, clock=lambda: NOW)
    with pytest.raises(InvalidToken):
        await reviews.verify(WEB_1, jwt(claims()), address="10.0.0.1")
    api.status = good()
    assert await reviews.verify(WEB_1, jwt(claims()), address="10.0.0.2") == ENDS


async def test_an_error_of_the_api_server_is_not_remembered():
    api = Api(error=ProxyError("no route"))
    reviews = TokenReview(api, uid_of, clock=lambda: NOW)
    with pytest.raises(ProxyError):
        await reviews.verify(WEB_1, jwt(claims()))
    api.error = None
    assert await reviews.verify(WEB_1, jwt(claims())) == ENDS


async def test_the_number_of_remembered_rejections_is_limited():
    reviews = TokenReview(Api({}), uid_of, clock=lambda: NOW)
    for number in range(MAX_REJECTIONS + 10):
        with pytest.raises(InvalidToken):
            await reviews.verify(WEB_1, jwt(claims()), address=f"10.0.0.{number}")
    assert len(reviews._rejections) == MAX_REJECTIONS
