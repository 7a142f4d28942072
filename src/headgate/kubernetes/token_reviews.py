"""Authenticate proxies by ServiceAccount tokens, which the cluster's API server verifies (TokenReview).

A proxy has a projected token with headgate's audience. The token names its pod, and becomes invalid when the pod is
deleted. The node ID `sidecar/<namespace>/<pod>` is accepted only with the token of that pod, and `gateway/<pod>` only with
that of a pod in `headgate-system` with the gateway's ServiceAccount.
"""

import asyncio
import base64
import binascii
import time
from collections.abc import Callable
from typing import Annotated

import msgspec

from headgate.envoy.node_ids import GATEWAY, SIDECAR
from headgate.errors import ProxyError
from headgate.kubernetes.client import ApiServer
from headgate.model.identities import is_gateway
from headgate.resources.meta import Input, Value
from headgate.xds.authentication import InvalidToken, check_expiry, printable, wrong_proxy

AUDIENCE = "headgate"
PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
MAX_CONCURRENT_REVIEWS = 4  # limits the load on the API server when many sidecars connect
END_OF_TIME = 253_402_300_799  # epoch seconds: the end of the year 9999, the latest year of Python's datetime
_USER = "system:serviceaccount:"
_POD_NAME = "authentication.kubernetes.io/pod-name"
_PARTS = 3  # header, claims and signature of a JSON Web Token
_PROJECTED = f"give the sidecar a projected serviceAccountToken with audience {AUDIENCE}"


class _Pod(Value, frozen=True, kw_only=True):
    name: str


class _Bound(Value, frozen=True, kw_only=True):
    """The namespace and the pod that a token is bound to."""

    namespace: str
    pod: _Pod | None = None


class _Claims(Value, frozen=True, kw_only=True):
    """The claims of a token. They are not trusted until the API server has verified the token."""

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
    """A TokenVerifier that uses TokenReviews. headgate's ServiceAccount needs the ClusterRole `system:auth-delegator`."""

    def __init__(self, api: ApiServer, *, clock: Callable[[], float] = time.time) -> None:
        self._api = api
        self._clock = clock
        self._turns = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)

    async def verify(self, node_id: str, token: str) -> float:
        """Verify a pod's token; return its expiry in epoch seconds.

        Raises InvalidToken, or ProxyError if the API server can't be reached.
        """
        claims = _claims(token)
        pod = claims.bound.pod
        if pod is None:
            raise InvalidToken(f"the token is not bound to a pod: {_PROJECTED}")
        owner = _node_id(claims.sub, claims.bound.namespace, pod.name)
        if owner != node_id:  # checked here to avoid a needless TokenReview
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
            raise ProxyError(f"the API server's response is not a TokenReview: {error}") from error
        if not status.authenticated:
            reason = status.error.replace(token, "...") or "it gives no reason"
            raise InvalidToken(f"the API server does not accept the token of {owner}: {reason}")
        if AUDIENCE not in status.audiences:
            raise InvalidToken(
                f"the token of {owner} is for {', '.join(status.audiences) or 'no audience'}: {_PROJECTED}"
            )
        return status


def _node_id(subject: str, namespace: str, pod: str) -> str:
    """Return the node ID of the proxy in a pod: a gateway if the pod has the gateway's ServiceAccount, else a sidecar."""
    account = subject.rpartition(":")[2]
    return f"{GATEWAY}/{pod}" if is_gateway(namespace, account) else f"{SIDECAR}/{namespace}/{pod}"


def _agree(claims: _Claims, pod: str, status: _Status) -> None:
    """Compare the claims of a token with the user that the API server returned. Raises InvalidToken if they differ."""
    user = status.user
    found_pod = user.extra.get(_POD_NAME, (pod,))  # older servers verify the token's pod, but do not return it
    namespace = user.username.removeprefix(_USER).partition(":")[0]
    is_account = user.username.startswith(_USER) and user.username == claims.sub
    if not is_account or namespace != claims.bound.namespace or found_pod != (pod,):
        raise InvalidToken(
            f"the API server says that the token is {user.username}'s, not that of a pod's ServiceAccount"
        )


def _claims(token: str) -> _Claims:
    """Decode the claims of a token without verifying it. Raises InvalidToken if it is not a ServiceAccount token."""
    parts = token.split(".")
    try:
        if len(parts) != _PARTS:
            raise InvalidToken("the token is malformed: it is not a JSON Web Token")
        content = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(content, type=_Claims)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise InvalidToken(f"the token is not a ServiceAccount token: {_PROJECTED}") from error
