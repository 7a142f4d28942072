"""Discovery messages to and from bytes. Responses are put together from resources that are serialised already."""

from functools import lru_cache

from google.protobuf.message import DecodeError

from headgate.envoy import pb
from headgate.envoy.config import TypeUrl
from headgate.errors import ProxyError
from headgate.xds.session import Request
from headgate.xds.shelf import Response
from headgate.xds.versions import Pairs, Reported, Same

MANY = 16  # resources from which on a response is remembered, as it may be sent to other proxies too
REMEMBERED = 12  # responses of up to 2 MB

_VERSION, _RESOURCE, _TYPE_URL, _NONCE, _REMOVED = 1, 2, 4, 5, 6  # fields of DeltaDiscoveryResponse


def read_request(data: bytes) -> tuple[str, Request]:
    """Return the node's id, where the message has it (the first of a stream), and the request. Raises ProxyError."""
    try:
        message = pb.DeltaDiscoveryRequest.FromString(data)
    except DecodeError as error:
        raise ProxyError("this is no DeltaDiscoveryRequest; send Envoy's delta xDS v3") from error
    node_id = message.node.id
    request = Request(
        type_url=message.type_url,
        subscribe=tuple(message.resource_names_subscribe),
        unsubscribe=tuple(message.resource_names_unsubscribe),
        nonce=message.response_nonce,
        error=message.error_detail.message if message.HasField("error_detail") else None,
    )
    if message.initial_resource_versions:
        request = request._replace(initial=Reported(message))
    return node_id, request


def write_response(response: Response) -> bytes:
    """Return the DeltaDiscoveryResponse; the same bytes for all proxies that are sent the same at the same time."""
    if len(response.resources) < MANY:
        return _written(response)
    return _shared(Same(response.resources), response.type_url, response.nonce, response.removed)


@lru_cache(REMEMBERED)
def _shared(resources: Same[Pairs], type_url: TypeUrl, nonce: str, removed: tuple[str, ...]) -> bytes:
    return _written(Response(type_url, nonce, resources.it, removed))


def _written(response: Response) -> bytes:
    parts = [_field(_VERSION, response.nonce.encode())]
    parts += [_field(_RESOURCE, encoded.body) for _, encoded in response.resources]
    parts += [_field(_TYPE_URL, response.type_url.encode()), _field(_NONCE, response.nonce.encode())]
    parts += [_field(_REMOVED, name.encode()) for name in response.removed]
    return b"".join(parts)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # seven bits a byte, as protobuf has it
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
