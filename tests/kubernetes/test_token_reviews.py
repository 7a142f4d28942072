"""Tokens of service accounts: what is asked of the API server, what is not, and what is made of its answers."""

import base64
import json

import pytest

from headgate.errors import ProxyError
from headgate.kubernetes.token_reviews import PATH, TokenReview
from headgate.xds.authentication import InvalidToken

WEB_1, WEB_2 = "sidecar/shop/web-1", "sidecar/shop/web-2"
USER = "system:serviceaccount:shop:web"
NOW, ENDS = 1_800_000_000.0, 1_800_003_600
POD = "authentication.kubernetes.io/pod-name"


def jwt(claims):
    parts = ({"alg": "RS256"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJl"])


def claims(*, pod="web-1", namespace="shop", **more):
    bound = {"namespace": namespace, "serviceaccount": {"name": "web", "uid": "1"}}
    if pod:
        bound["pod"] = {"name": pod, "uid": "2"}
    return {"aud": ["headgate"], "exp": ENDS, "sub": USER, "kubernetes.io": bound} | more


def good(**more):
    extra = {POD: ["web-1"]}
    return {"authenticated": True, "audiences": ["headgate"], "user": {"username": USER, "extra": extra}} | more


class Api:
    """An API server with one answer; keeps what it was asked."""

    def __init__(self, status=None, error=None):
        self.status = good() if status is None else status
        self.error = error
        self.asked = []

    async def create(self, path, body):
        self.asked.append((path, body))
        if self.error:
            raise self.error
        return {"kind": "TokenReview", "status": self.status}


async def check(api, token, node_id=WEB_1):
    return await TokenReview(api, clock=lambda: NOW).verify(node_id, token)


async def refusal(api, token, node_id=WEB_1):
    with pytest.raises(InvalidToken) as refused:
        await check(api, token, node_id)
    assert not token or token not in str(refused.value)
    assert str(refused.value).isprintable()
    return str(refused.value)


async def test_a_pods_token_proves_its_sidecar_until_it_ends():
    api, token = Api(), jwt(claims())
    assert await check(api, token) == ENDS
    ((path, body),) = api.asked
    assert path == PATH
    assert body["spec"] == {"token": token, "audiences": ["headgate"]}


async def test_servers_that_do_not_name_the_pod_vouch_for_the_token_that_does():
    assert await check(Api(good(user={"username": USER})), jwt(claims())) == ENDS


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (jwt(claims(pod="web-2")), f"the token belongs to {WEB_2}, not to {WEB_1}"),
        (jwt(claims(namespace="bank")), f"the token belongs to sidecar/bank/web-1, not to {WEB_1}"),
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
async def test_what_is_plain_to_see_is_refused_without_a_review(token, said):
    api = Api()
    assert said in await refusal(api, token)
    assert api.asked == []


async def test_what_the_api_server_does_not_accept_is_refused_in_its_words():
    token = jwt(claims())
    api = Api({"authenticated": False, "error": f"{token[:9]}: service account token has been invalidated"})
    assert "service account token has been invalidated" in await refusal(api, token)
    assert "no reason" in await refusal(Api({}), token)


async def test_an_error_that_quotes_the_token_does_not_reach_the_message():
    token = jwt(claims())
    assert "..." in await refusal(Api({"error": f"invalid bearer token {token}"}), token)


@pytest.mark.parametrize("audiences", [[], ["https://kubernetes.default.svc"]])
async def test_a_token_for_somebody_else_is_refused(audiences):
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
async def test_what_the_api_server_knows_better_counts(user):
    assert "the API server says" in await refusal(Api(good(user=user)), jwt(claims()))


@pytest.mark.parametrize("status", [{"authenticated": "yes"}, [], {"authenticated": True, "user": "web"}])
async def test_an_answer_that_is_none_is_not_taken_for_one(status):
    with pytest.raises(ProxyError, match="not a TokenReview"):
        await check(Api(status), jwt(claims()))


async def test_a_server_that_cant_be_asked_makes_no_token_wrong():
    with pytest.raises(ProxyError, match="no route") as raised:
        await check(Api(error=ProxyError("no route")), jwt(claims()))
    assert not isinstance(raised.value, InvalidToken)
