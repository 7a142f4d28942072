"""The messages of a delta ADS stream: their content, and their bytes."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from google.protobuf.message import DecodeError

from headgate.envoy import pb
from headgate.envoy.config import TypeUrl
from headgate.errors import ProxyError
from headgate.xds.subscription import Response
from headgate.xds.versions import ById, InitialVersions, Pairs

MIN_CACHED_RESOURCES = (
    16  # responses with at least this many resources are cached as bytes: other proxies may get them too
)
CACHED_RESPONSES = 12  # the number of cached responses, most up to 2 MB large
MAX_CACHED_REQUESTS = 128  # decoded requests: proxies in the same state send the same bytes
MAX_CACHED_REQUEST_BYTES = 2**16


class DeltaRequest(NamedTuple):
    """A DeltaDiscoveryRequest. With `error` (Envoy's message), it is the NACK of the response with this `nonce`."""

    type_url: TypeUrl
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    initial: Mapping[str, str] = {}
    nonce: str = ""
    error: str | None = None


_VERSION, _RESOURCE, _TYPE_URL, _NONCE, _REMOVED = 1, 2, 4, 5, 6  # fields of DeltaDiscoveryResponse


def read_request(data: bytes) -> tuple[str, DeltaRequest]:
    """Decode a request; return the node ID and the request. Only the first request of a stream has a node ID.

    Raises ProxyError when the bytes are not a DeltaDiscoveryRequest.
    """
    if cached := _cached_requests.get(data):
        return "", cached
    try:
        message = pb.DeltaDiscoveryRequest.FromString(data)
    except DecodeError as error:
        raise ProxyError("the message is not a DeltaDiscoveryRequest: send requests of Envoy's delta xDS v3") from error
    node_id = message.node.id
    request = DeltaRequest(
        type_url=message.type_url,
        subscribe=tuple(message.resource_names_subscribe),
        unsubscribe=tuple(message.resource_names_unsubscribe),
        nonce=message.response_nonce,
        error=message.error_detail.message if message.HasField("error_detail") else None,
    )
    if message.initial_resource_versions:
        request = request._replace(initial=InitialVersions(message))
    elif not node_id and len(data) <= MAX_CACHED_REQUEST_BYTES:
        _cached_requests[data] = request
        if len(_cached_requests) > MAX_CACHED_REQUESTS:
            del _cached_requests[next(iter(_cached_requests))]
    return node_id, request


_cached_requests: dict[bytes, DeltaRequest] = {}


def write_response(response: Response) -> bytes:
    """Encode a response; large ones that several proxies get at the same time are encoded once."""
    if len(response.resources) < MIN_CACHED_RESOURCES:
        return _encode(response)
    return _cached_encode(ById(response.resources), response.type_url, response.nonce, response.removed)


@lru_cache(CACHED_RESPONSES)
def _cached_encode(resources: ById[Pairs], type_url: TypeUrl, nonce: str, removed: tuple[str, ...]) -> bytes:
    return _encode(Response(type_url, nonce, resources.value, removed))


def _encode(response: Response) -> bytes:
    parts = [_field(_VERSION, response.nonce.encode())]
    parts += [_field(_RESOURCE, encoded.body) for _, encoded in response.resources]
    parts += [_field(_TYPE_URL, response.type_url.encode()), _field(_NONCE, response.nonce.encode())]
    parts += [_field(_REMOVED, name.encode()) for name in response.removed]
    return b"".join(parts)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # a protobuf varint has seven bits per byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
