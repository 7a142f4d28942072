"""Delegated authentication and authorization of requests that a cluster's API server proxies to headgate (R99 to R101).

The API server authenticates the user and sends the user's name in request headers. headgate trusts these headers only on a
connection with a client certificate from the request-header CA, because any client can write headers. A SubjectAccessReview decides
each request by RBAC, where `pods/edges` and `pods` are different resources. A check that fails for any reason denies access.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec

from headgate.api.resource_attributes import ResourceAttributes
from headgate.api.status import ApiError
from headgate.errors import HeadgateError, ProxyError
from headgate.resources.meta import Input, Object, Value

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_CACHE_SECONDS = 10.0  # Seconds for which an allowed review is cached, as in Kubernetes' own API servers.
_PATH_CACHE_SECONDS = 300.0
"""The same for paths: discovery has no secrets, and Kubernetes' controllers read it every 30 s, 25 documents at once."""
_AUTHENTICATED, _ANONYMOUS = "system:authenticated", "system:anonymous"
_CACHE_SIZE = 4096  # The maximum number of cached permissions, for resources and for paths.


class KubernetesApi(Protocol):
    """A client of a Kubernetes API server."""

    async def create(self, path: str, body: Object) -> Object:
        """Create an object and return the API server's version of it. Raises ProxyError when that fails."""

    async def read(self, path: str) -> Object:
        """Return an object. Raises ProxyError when it can't be read."""


class User(Value, frozen=True, kw_only=True):
    """A user that the API server has authenticated."""

    name: str
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class RequestHeaderConfig(Value, frozen=True, kw_only=True):
    """The API server's request-header authentication: its client certificate, and the headers with the user.

    `authority` is the PEM of the CA that signs its client certificates. `names` has the common names that such a certificate
    may have; an empty tuple allows any. Header names are in lower case.
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


async def read_request_header_config(api: KubernetesApi) -> RequestHeaderConfig:
    """Read the cluster's request-header configuration. Raises ProxyError if it can't be read or names no CA."""
    try:
        data = msgspec.convert(await api.read(CONFIG_MAP), _ConfigMap).data
        if not data.client_ca_file:
            raise ProxyError(
                "the ConfigMap kube-system/extension-apiserver-authentication has no requestheader-client-ca-file;"
                " start the API server with --requestheader-client-ca-file, so that its requests can be authenticated"
            )
        return RequestHeaderConfig(
            authority=data.client_ca_file,
            names=_words(data.allowed_names),
            user_headers=_lowered(data.username_headers),
            group_headers=_lowered(data.group_headers),
            extra_prefixes=_lowered(data.extra_headers_prefix),
        )
    except msgspec.MsgspecError as error:
        raise ProxyError(
            f"can't parse the ConfigMap kube-system/extension-apiserver-authentication: {error}"
        ) from error


def _words(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])


def _lowered(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _words(text))


def authenticate(config: RequestHeaderConfig, common_name: str | None, headers: Sequence[tuple[str, str]]) -> User:
    """Return the user that the request headers name, in the group of all authenticated users unless it is the anonymous one.

    The API server names no group for its own user `system:aggregator`, which reads /openapi/v2; Kubernetes' servers add this one.

    `common_name` is that of the verified client certificate, None without a certificate. The names of `headers` are in lower
    case. Raises ApiError 401 when the client is not the API server, or the headers name no user.
    """
    if common_name is None:
        raise ApiError(401, "Unauthorized: no client certificate; send the request to the cluster's API server")
    if config.names and common_name not in config.names:
        raise ApiError(
            401,
            f"Unauthorized: the client certificate's common name {common_name!r} is not in requestheader-allowed-names",
        )
    name = next((value for header in config.user_headers for key, value in headers if key == header and value), "")
    if not name:
        raise ApiError(401, f"Unauthorized: no user in the request header {' or '.join(config.user_headers)}")
    groups = tuple(value for header in config.group_headers for key, value in headers if key == header)
    if name != _ANONYMOUS and _AUTHENTICATED not in groups:
        groups = (*groups, _AUTHENTICATED)
    return User(name=name, groups=groups, extra=_extra(config, headers))


def _extra(config: RequestHeaderConfig, headers: Sequence[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    extra: dict[str, tuple[str, ...]] = {}
    for prefix in config.extra_prefixes:
        for key, value in headers:
            if key.startswith(prefix):
                name = unquote(key.removeprefix(prefix)).lower()
                extra[name] = (*extra.get(name, ()), value)
    return tuple(sorted(extra.items()))


class _Status(Input, frozen=True, kw_only=True):
    allowed: bool = False
    denied: bool = False


class _Review(Input, frozen=True, kw_only=True):
    status: _Status = _Status()


class DelegatedAuthorizer:
    """The authorizer of users, by SubjectAccessReviews. headgate's own account needs the ClusterRole `system:auth-delegator`."""

    def __init__(self, api: KubernetesApi, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._allowed: dict[float, dict[bytes, float]] = {_CACHE_SECONDS: {}, _PATH_CACHE_SECONDS: {}}

    async def authorize(self, user: User, attributes: ResourceAttributes) -> None:
        """Check that a user may access a resource. Raises ApiError 403, and 503 when the API server does not answer."""
        if not await self._is_allowed(user, {"resourceAttributes": attributes.to_object()}, _CACHE_SECONDS):
            raise _forbidden(user, attributes)

    async def authorize_path(self, user: User, path: str) -> None:
        """Check that a user may read a non-resource path, such as discovery. Raises ApiError 403, 503."""
        attributes = {"nonResourceAttributes": {"path": path, "verb": "get"}}
        if not await self._is_allowed(user, attributes, _PATH_CACHE_SECONDS):
            raise ApiError(403, f'forbidden: User "{user.name}" cannot get path "{path}"')

    async def _is_allowed(self, user: User, attributes: Mapping[str, Any], cache_seconds: float) -> bool:
        spec = {"user": user.name, "groups": user.groups, "extra": dict(user.extra), **attributes}
        key = msgspec.json.encode(spec)
        now = self._clock()
        if self._allowed[cache_seconds].get(key, now) > now:
            return True
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        try:
            status = msgspec.convert(await self._api.create(REVIEWS, review), _Review).status
        except (HeadgateError, msgspec.ValidationError) as error:
            raise ApiError(503, f"the SubjectAccessReview of user {user.name!r} failed: {error}") from error
        if status.allowed and not status.denied:
            self._cache(key, now, cache_seconds)
            return True
        return False

    def _cache(self, key: bytes, now: float, seconds: float) -> None:
        """Cache a permission; paths, of which a user can invent any number, take no room of resources."""
        allowed = self._allowed[seconds]
        if len(allowed) >= _CACHE_SIZE:
            allowed = self._allowed[seconds] = {cached: end for cached, end in allowed.items() if end > now}
        if len(allowed) < _CACHE_SIZE:
            allowed[key] = now + seconds


def _forbidden(user: User, attributes: ResourceAttributes) -> ApiError:
    group, resource, namespace = attributes.group, attributes.resource, attributes.namespace
    where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    name = f' "{attributes.name}"' if attributes.name else ""
    return ApiError(
        403,
        f'{resource}.{group}{name} is forbidden: User "{user.name}" cannot {attributes.verb} resource'
        f' "{attributes.full_resource}" in API group "{group}"{where}',
        details={"group": group, "kind": resource, **({"name": attributes.name} if name else {})},
    )
