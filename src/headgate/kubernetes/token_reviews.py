"""Authenticate proxies by ServiceAccount tokens, which the cluster's API server verifies (TokenReview).

A proxy has a projected token with headgate's audience. The token names its pod, and becomes invalid when the pod is
deleted. The node ID `sidecar/<namespace>/<pod>` is accepted only with the token of that pod, and `gateway/<pod>` only with
that of a pod in `headgate-system` with the gateway's ServiceAccount.

The claims of a token are public to its pod, so a client without a valid token could let the API server review any number of
invalid ones. Most of them are rejected without a review: a review needs the UID of a pod that exists. After a rejection the
same client gets no review for this pod for seconds, and addresses get their reviews in turn.
"""

import base64
import binascii
import time
from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec

from headgate.compiler.snapshot import Snapshot
from headgate.envoy.node_ids import GATEWAY, SIDECAR
from headgate.errors import ProxyError
from headgate.kubernetes.client import ApiServer
from headgate.kubernetes.fair_turns import FairTurns
from headgate.latest import Latest
from headgate.model.identities import is_gateway
from headgate.resources.meta import Input, Key, Value
from headgate.xds.authentication import InvalidToken, UnknownPod, check_expiry, printable, wrong_proxy

AUDIENCE = "headgate"
PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
MAX_CONCURRENT_REVIEWS = 4  # limits the load on the API server when many sidecars connect
MAX_WAITING_REVIEWS = 128
"""The most waiting reviews of one address: the pods of a whole node (110 by default), should they share the node's address."""
REJECTION_SECONDS = 5.0
"""The time after the rejection of a token in which no token from the same address for the same pod is reviewed."""
MAX_REJECTIONS = 4096  # rejections that are remembered
END_OF_TIME = 253_402_300_799  # epoch seconds: the end of the year 9999, the latest year of Python's datetime
_USER = "system:serviceaccount:"
_POD_NAME = "authentication.kubernetes.io/pod-name"
_PARTS = 3  # header, claims and signature of a JSON Web Token
_PROJECTED = f"give the sidecar a projected serviceAccountToken with audience {AUDIENCE}"


class _Header(Value, frozen=True, kw_only=True):
    """The header of a token: the algorithm of its signature."""

    alg: str


class _Pod(Value, frozen=True, kw_only=True):
    name: str
    uid: str


class _Bound(Value, frozen=True, kw_only=True):
    """The namespace and the pod that a token is bound to."""

    namespace: str
    pod: _Pod | None = None


class _Claims(Value, frozen=True, kw_only=True):
    """The claims of a token. They are not trusted until the API server has verified the token."""

    sub: str
    aud: str | tuple[str, ...]
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


class _Rejection(NamedTuple):
    """A message about a rejected token, and the time until which it is the answer for the pod."""

    until: float
    message: str


class TokenReview:
    """A TokenVerifier that uses TokenReviews. headgate's ServiceAccount needs the ClusterRole `system:auth-delegator`.

    `uid_of` returns the UID of a pod (namespace, name), None if there is no such pod.
    """

    def __init__(
        self, api: ApiServer, uid_of: Callable[[str, str], str | None], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._api = api
        self._uid_of = uid_of
        self._clock = clock
        self._turns = FairTurns(MAX_CONCURRENT_REVIEWS, MAX_WAITING_REVIEWS)
        self._rejections: dict[tuple[str, str], _Rejection] = {}  # by address and UID of the pod, oldest first

    def node_of(self, token: str) -> str:
        """Return the node ID of the proxy in the pod that a token names. Raises InvalidToken."""
        claims = _claims(token)
        return _node_id(claims.sub, claims.bound.namespace, _pod_of(claims).name)

    async def verify(self, node_id: str, token: str, *, address: str = "") -> float:
        """Verify a pod's token, sent from this address; return its expiry in epoch seconds.

        Raises InvalidToken, or ProxyError if the API server can't be reached or too many tokens of this address wait.
        """
        claims = _claims(token)
        pod = _pod_of(claims)
        owner = _node_id(claims.sub, claims.bound.namespace, pod.name)
        if owner != node_id:
            raise wrong_proxy(owner, node_id)
        ends = check_expiry(owner, claims.exp, self._clock())
        if self._uid_of(claims.bound.namespace, pod.name) != pod.uid:
            # The message and status are the same for an unknown pod and for another UID: clients must not learn which pods exist.
            raise UnknownPod(
                f"{printable(owner)} has no pod with the UID of this token; if the pod is new, the next attempt succeeds"
            )
        self._check_rejections(address, pod.uid)
        async with self._turns.turn(address):
            self._check_rejections(address, pod.uid)  # another token of this client may have been rejected meanwhile
            try:
                _agree(claims, pod.name, await self._review(printable(owner), token))
            except InvalidToken as invalid:
                self._remember(address, pod.uid, str(invalid))
                raise
        return ends

    def _check_rejections(self, address: str, uid: str) -> None:
        rejection = self._rejections.get((address, uid))
        if rejection and self._clock() < rejection.until:
            raise InvalidToken(rejection.message)

    def _remember(self, address: str, uid: str, message: str) -> None:
        self._rejections.pop((address, uid), None)
        self._rejections[address, uid] = _Rejection(self._clock() + REJECTION_SECONDS, message)
        if len(self._rejections) > MAX_REJECTIONS:
            del self._rejections[next(iter(self._rejections))]

    async def _review(self, owner: str, token: str) -> _Status:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
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


def pod_uids(snapshot: Latest[Snapshot | None]) -> Callable[[str, str], str | None]:
    """Return a function that returns the UID of a pod in the newest snapshot, by its namespace and name."""

    def uid_of(namespace: str, name: str) -> str | None:
        newest, key = snapshot.get(), Key("", "Pod", namespace, name)
        pod = (newest.objects.get(key) or newest.fail_closed.get(key)) if newest else None
        return pod.metadata.uid if pod else None

    return uid_of


def _pod_of(claims: _Claims) -> _Pod:
    if claims.bound.pod is None:
        raise InvalidToken(f"the token is not bound to a pod: {_PROJECTED}")
    return claims.bound.pod


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
        header, content, signature = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in parts)
        msgspec.json.decode(header, type=_Header)
        claims = msgspec.json.decode(content, type=_Claims)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise InvalidToken(f"the token is not a ServiceAccount token: {_PROJECTED}") from error
    if not signature or not claims.sub.startswith(f"{_USER}{claims.bound.namespace}:"):
        raise InvalidToken(f"the token is not a ServiceAccount token: {_PROJECTED}")
    audiences = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
    if AUDIENCE not in audiences:
        raise InvalidToken(f"the token is for {printable(', '.join(audiences)) or 'no audience'}: {_PROJECTED}")
    return claims
