"""Who asks, when a cluster's API server stands in front of the metrics API, and whether they may (R99 to R101).

The API server authenticates users and passes on who they are in headers. That counts only on a connection with a client
certificate of the request-header CA, for anybody can write headers. What users may do is asked back (SubjectAccessReview),
as RBAC knows it: `pods/edges` is another resource than `pods`. Whatever can't be made sure of is refused.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec

from headgate.api.attributes import Attributes
from headgate.api.status import ApiError
from headgate.errors import HeadgateError, ProxyError
from headgate.resources.meta import Input, Object, Value

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_REMEMBERED_S = 10.0  # how long a permission may outlive its Role, as in Kubernetes' own API servers
_MOST_REMEMBERED = 4096


class Api(Protocol):
    """A Kubernetes API server."""

    async def create(self, path: str, body: Object) -> Object:
        """Create an object and return what became of it. Raises ProxyError, which says why not."""

    async def read(self, path: str) -> Object:
        """Return an object. Raises ProxyError, which says why not."""


class User(Value, frozen=True, kw_only=True):
    """Somebody whom the API server has authenticated."""

    name: str
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class FrontProxy(Value, frozen=True, kw_only=True):
    """By what the API server in front is known, and where it writes who asks.

    `authority` is the PEM of the CA of its client certificates; `names` are the common names that these may have, any when
    there are none. Names of headers are in lower case.
    """

    authority: str
    names: tuple[str, ...] = ()
    user_headers: tuple[str, ...] = ("x-remote-user",)
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)


class _Data(Value, frozen=True, kw_only=True, rename=lambda name: "requestheader-" + name.replace("_", "-")):
    client_ca_file: str = ""
    allowed_names: str = "[]"
    username_headers: str = '["X-Remote-User"]'
    group_headers: str = '["X-Remote-Group"]'
    extra_headers_prefix: str = '["X-Remote-Extra-"]'


class _ConfigMap(Input, frozen=True, kw_only=True):
    data: _Data = _Data()


async def front_proxy(api: Api) -> FrontProxy:
    """Read how the API server in front is known. Raises ProxyError; without a CA nobody could be believed."""
    try:
        data = msgspec.convert(await api.read(CONFIG_MAP), _ConfigMap).data
        if not data.client_ca_file:
            raise ProxyError(
                "the ConfigMap extension-apiserver-authentication of kube-system has no requestheader-client-ca-file:"
                " the API server needs --requestheader-client-ca-file, or else no request can prove that it comes from it"
            )
        return FrontProxy(
            authority=data.client_ca_file,
            names=_words(data.allowed_names),
            user_headers=_lowered(data.username_headers),
            group_headers=_lowered(data.group_headers),
            extra_prefixes=_lowered(data.extra_headers_prefix),
        )
    except msgspec.MsgspecError as error:
        raise ProxyError(f"the ConfigMap extension-apiserver-authentication can't be understood: {error}") from error


def _words(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])


def _lowered(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _words(text))


def user_of(front: FrontProxy, certified: str | None, headers: Sequence[tuple[str, str]]) -> User:
    """Return who asks. `certified` is the common name of the verified client certificate, None without one.

    Raises ApiError 401. Names of `headers` are in lower case.
    """
    if certified is None:
        raise ApiError(401, "Unauthorized: ask through the cluster's API server, not directly")
    if front.names and certified not in front.names:
        raise ApiError(401, f"Unauthorized: the client certificate is {certified!r}'s, who may not speak for others")
    name = next((value for wanted in front.user_headers for key, value in headers if key == wanted and value), "")
    if not name:
        raise ApiError(401, "Unauthorized: the API server does not say who asks")
    groups = tuple(value for wanted in front.group_headers for key, value in headers if key == wanted)
    return User(name=name, groups=groups, extra=_extra(front, headers))


def _extra(front: FrontProxy, headers: Sequence[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, tuple[str, ...]] = {}
    for prefix in front.extra_prefixes:
        for key, value in headers:
            if key.startswith(prefix):
                name = unquote(key.removeprefix(prefix)).lower()
                found[name] = (*found.get(name, ()), value)
    return tuple(sorted(found.items()))


class _Status(Input, frozen=True, kw_only=True):
    allowed: bool = False
    denied: bool = False


class _Review(Input, frozen=True, kw_only=True):
    status: _Status = _Status()


class Permissions:
    """What users may do, by the word of a cluster's API server. headgate's own account needs `system:auth-delegator`."""

    def __init__(self, api: Api, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._allowed: dict[bytes, float] = {}

    async def check(self, user: User, wanted: Attributes) -> None:
        """Check that a user may do what a request asks for. Raises ApiError 403, 503."""
        if not await self._may(user, {"resourceAttributes": wanted.written()}):
            raise _forbidden(user, wanted)

    async def check_path(self, user: User, path: str) -> None:
        """Check that a user may read what the server says of itself. Raises ApiError 403, 503."""
        if not await self._may(user, {"nonResourceAttributes": {"path": path, "verb": "get"}}):
            raise ApiError(403, f'forbidden: User "{user.name}" cannot get path "{path}"')

    async def _may(self, user: User, what: Mapping[str, Any]) -> bool:
        spec = {"user": user.name, "groups": user.groups, "extra": dict(user.extra), **what}
        key = msgspec.json.encode(spec)
        now = self._clock()
        if self._allowed.get(key, now) > now:
            return True
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        try:
            status = msgspec.convert(await self._api.create(REVIEWS, review), _Review).status
        except (HeadgateError, msgspec.ValidationError) as error:
            raise ApiError(503, f"the API server can't be asked what {user.name!r} may do: {error}") from error
        if status.allowed and not status.denied:
            self._remember(key, now)
            return True
        return False

    def _remember(self, key: bytes, now: float) -> None:
        if len(self._allowed) >= _MOST_REMEMBERED:
            self._allowed = {known: until for known, until in self._allowed.items() if until > now}
        if len(self._allowed) < _MOST_REMEMBERED:
            self._allowed[key] = now + _REMEMBERED_S


def _forbidden(user: User, wanted: Attributes) -> ApiError:
    where = f' in the namespace "{wanted.namespace}"' if wanted.namespace else " at the cluster scope"
    name = f' "{wanted.name}"' if wanted.name else ""
    return ApiError(
        403,
        f'{wanted.resource}.{wanted.group}{name} is forbidden: User "{user.name}" cannot {wanted.verb} resource'
        f' "{wanted.full_resource}" in API group "{wanted.group}"{where}',
        details={"group": wanted.group, "kind": wanted.resource, **({"name": wanted.name} if name else {})},
    )
