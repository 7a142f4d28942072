"""Convert resources to JSON for users and scripts, with private keys redacted."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format

from headgate.envoy import descriptors, pb
from headgate.envoy.config import SECRET, Encoded, TypeUrl
from headgate.model.identities import PrivateText

_MAPS = ("filter_metadata", "typed_per_filter_config", "typed_extension_protocol_options")
_PUBLIC = ("certificate_chain",)  # the fields of a certificate that are not redacted


def content(type_url: TypeUrl, encoded: Encoded) -> Mapping[str, Any]:
    """Return the message of a resource as JSON values, with Envoy's field names; maps are sorted by key."""
    resource = pb.Resource.FromString(encoded.body)
    fields = json_format.MessageToDict(
        resource.resource, preserving_proto_field_name=True, descriptor_pool=descriptors.pool()
    )
    if type_url == SECRET and "tls_certificate" in fields:
        certificate = fields["tls_certificate"]
        fields["tls_certificate"] = {
            name: value if name in _PUBLIC else str(PrivateText()) for name, value in certificate.items()
        }
    return _ordered(fields)


def _ordered(value: Mapping[str, Any], *, is_map: bool = False) -> Mapping[str, Any]:
    """Return a message with sorted maps, which have no order in protobuf; fields keep their order."""
    is_map = is_map and "@type" not in value
    entries = sorted(value.items()) if is_map else value.items()
    return {key: _inside(member, is_map=is_map or key in _MAPS) for key, member in entries}


def _inside(value: Any, *, is_map: bool) -> Any:
    if isinstance(value, list):
        return [_inside(element, is_map=is_map) for element in value]
    return _ordered(value, is_map=is_map) if isinstance(value, dict) else value
