"""Service-account tokens as proofs: a cluster's API server says whether they are good, and whose they are.

A sidecar's token is a projected one with headgate's audience. It names its pod, and is worth nothing when the pod is gone
(TokenReview, authentication.k8s.io/v1). The stream of `sidecar/<namespace>/<pod>` takes that pod's token alone.
"""

import asyncio
import base64
import binascii
import time
from collections.abc import Callable
from typing import Annotated

import msgspec

from headgate.errors import ProxyError
from headgate.kubernetes.client import ApiServer
from headgate.resources.meta import Input, Value
from headgate.xds.authentication import InvalidToken, check_expiry, printable, wrong_proxy

AUDIENCE = "headgate"
PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
MAX_CONCURRENT_REVIEWS = 4  # reviews that are asked for at the same time, whoever knocks
END_OF_TIME = 253_402_300_799  # the last second that has a date
_USER = "system:serviceaccount:"
_POD_NAME = "authentication.kubernetes.io/pod-name"
_PARTS = 3  # of a JSON Web Token
_PROJECTED = f"give the sidecar a projected serviceAccountToken with audience {AUDIENCE}"


class _Pod(Value, frozen=True, kw_only=True):
    name: str


class _Bound(Value, frozen=True, kw_only=True):
    """What a token is bound to."""

    namespace: str
    pod: _Pod | None = None


class _Claims(Value, frozen=True, kw_only=True):
    """What a token says of itself; true only when the API server has vouched for it."""

    sub: str
    exp: Annotated[float, msgspec.Meta(ge=0, le=END_OF_TIME)]
    bound: _Bound = msgspec.field(name="kubernetes.io")


class _User(Input, frozen=True, kw_only=True):
    username: str = ""
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class _Status(Input, frozen=True, kw_only=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] = ()
    error: str = ""


class _Review(Input, frozen=True, kw_only=True):
    status: _Status = _Status()


class TokenReview:
    """TokenVerifier that a cluster's API server vouches for. headgate's own account needs `system:auth-delegator`."""

    def __init__(self, api: ApiServer, *, clock: Callable[[], float] = time.time) -> None:
        self._api = api
        self._clock = clock
        self._turns = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)

    async def verify(self, node_id: str, token: str) -> float:
        """Return when a pod's token ends. Raises InvalidToken, or ProxyError when the API server can't be asked."""
        claims = _claims(token)
        pod = claims.bound.pod
        if pod is None:
            raise InvalidToken(f"the token is not bound to a pod: {_PROJECTED}")
        owner = f"sidecar/{claims.bound.namespace}/{pod.name}"
        if owner != node_id:  # what is plain to see costs no review
            raise wrong_proxy(owner, node_id)
        ends = check_expiry(owner, claims.exp, self._clock())
        _agree(claims, pod.name, await self._review(printable(owner), token))
        return ends

    async def _review(self, owner: str, token: str) -> _Status:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        async with self._turns:
            answer = await self._api.create(PATH, review)
        try:
            status = msgspec.convert(answer, _Review).status
        except msgspec.ValidationError as error:
            raise ProxyError(f"the API server's answer is no TokenReview: {error}") from error
        if not status.authenticated:
            reason = status.error.replace(token, "...") or "it gives no reason"
            raise InvalidToken(f"the API server does not accept the token of {owner}: {reason}")
        if AUDIENCE not in status.audiences:
            raise InvalidToken(
                f"the token of {owner} is for {', '.join(status.audiences) or 'no audience'}: {_PROJECTED}"
            )
        return status


def _agree(claims: _Claims, pod: str, status: _Status) -> None:
    """Hold what the token says against what the API server says. Raises InvalidToken."""
    user = status.user
    told = user.extra.get(_POD_NAME, (pod,))  # servers that do not tell vouch for the whole token all the same
    namespace = user.username.removeprefix(_USER).partition(":")[0]
    is_account = user.username.startswith(_USER) and user.username == claims.sub
    if not is_account or namespace != claims.bound.namespace or told != (pod,):
        raise InvalidToken(
            f"the API server says that the token is {user.username}'s, not that of a pod's ServiceAccount"
        )


def _claims(token: str) -> _Claims:
    """Read what a token says of itself. Raises InvalidToken when it is none of a service account."""
    parts = token.split(".")
    try:
        if len(parts) != _PARTS:
            raise InvalidToken("the token is malformed: it is no JSON Web Token")
        content = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(content, type=_Claims)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise InvalidToken(f"the token is not one of a service account: {_PROJECTED}") from error
