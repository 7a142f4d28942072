"""Decoding of objects in protobuf: what current clients send, unknown fields and malformed bytes."""

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.status import ApiError
from headgate.standalone.apiserver.protobuf import decode


def part(number: int, body: Any) -> bytes:
    """Encode one field: text, bytes (a message) or a number below 128."""
    if isinstance(body, int):
        return bytes([number << 3, body])
    content = body.encode() if isinstance(body, str) else body
    return bytes([number << 3 | 2, len(content)]) + content


def envelope(api_version: str, kind: str, body: bytes) -> bytes:
    return b"k8s\x00" + part(1, part(1, api_version) + part(2, kind)) + part(2, body)


def test_text_and_bytes_of_a_config_map_are_decoded() -> None:
    metadata = part(1, "c") + part(3, "default") + part(8, b"") + part(11, part(1, "app") + part(2, "web"))
    body = part(1, metadata) + part(2, part(1, "a") + part(2, "b")) + part(3, part(1, "z") + part(2, b"\xff"))
    assert decode(envelope("v1", "ConfigMap", body)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "default", "labels": {"app": "web"}},
        "data": {"a": "b"},
        "binaryData": {"z": "/w=="},
    }


def test_special_kubernetes_types_are_decoded() -> None:
    limit = part(1, "cpu") + part(2, part(1, "500m"))
    port = part(2, part(1, 1) + part(3, "http"))  # IntOrString
    probe = part(1, part(2, part(1, "/ready") + port)) + part(2, 5)
    container = part(1, "web") + part(8, part(1, limit)) + part(11, probe)
    volume = part(1, "v") + part(2, part(2, b""))
    spec = part(1, volume) + part(2, container) + part(4, 0)
    body = part(1, part(1, "p") + part(8, part(1, 60))) + part(2, spec) + part(3, b"")
    decoded = decode(envelope("v1", "Pod", body))
    assert decoded["metadata"]["creationTimestamp"] == "1970-01-01T00:01:00Z"
    assert decoded["spec"] == {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [
            {
                "name": "web",
                "resources": {"limits": {"cpu": "500m"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "initialDelaySeconds": 5},
            }
        ],
        "terminationGracePeriodSeconds": 0,
    }
    assert "status" not in decoded


def test_zero_replicas_differ_from_absent_replicas() -> None:
    assert decode(envelope("apps/v1", "Deployment", part(2, part(1, 0) + part(5, 0))))["spec"] == {"replicas": 0}


def test_an_unknown_field_is_rejected_with_the_advice_to_send_json() -> None:
    with pytest.raises(ApiError, match="send application/json") as caught:
        decode(envelope("v1", "ConfigMap", part(15, "new")))
    assert caught.value.code == 415
    assert decode(envelope("v1", "ConfigMap", part(15, "")))["kind"] == "ConfigMap"


def test_an_unknown_kind_is_rejected() -> None:
    with pytest.raises(ApiError) as caught:
        decode(envelope("resource.k8s.io/v1", "ResourceClaim", b""))
    assert caught.value.code == 415


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_raise_only_api_errors(noise: bytes, enveloped: bool) -> None:
    body = b"k8s\x00" + part(1, part(1, "v1") + part(2, "Pod")) + b"\x12" + struct.pack("B", len(noise) & 0x7F) + noise
    with contextlib.suppress(ApiError):
        decode(body if enveloped else b"k8s\x00" + noise)
