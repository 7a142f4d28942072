"""Write the protobuf field numbers of Kubernetes' own kinds to resources/schemas/messages.json.

Current clients send typed objects in protobuf. The numbers are read from the descriptors inside a kube-apiserver that
was built with them (up to 1.2x); names that JSON does not have are marked: their fields stand in the parent there.

    python tools/core_messages.py "$KUBEBUILDER_ASSETS/kube-apiserver" v2.json
"""

import contextlib
import json
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

TARGET = Path(__file__).parent.parent / "src/headgate/resources/schemas/messages.json"
GZIP = re.compile(b"\x1f\x8b\x08")
LARGEST = 400_000
CORE, APPS, META = "io.k8s.api.core.v1.", "io.k8s.api.apps.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1."
BETA, V1 = "io.k8s.api.discovery.v1beta1.", "io.k8s.api.discovery.v1."
ROOTS = (
    *(
        CORE + kind
        for kind in ("Namespace", "Node", "Service", "Pod", "ServiceAccount", "Secret", "ConfigMap", "Event")
    ),
    APPS + "Deployment",
    APPS + "ReplicaSet",
    BETA + "EndpointSlice",
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
    META + "DeleteOptions",
    "io.k8s.api.policy.v1beta1.Eviction",
)
TYPES = {
    FieldDescriptorProto.TYPE_STRING: "text",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_INT32: "int",
    FieldDescriptorProto.TYPE_INT64: "int",
}


def descriptors(binary: bytes) -> Iterator[FileDescriptorProto]:
    """Yield the file descriptors of Kubernetes that a program carries, compressed, for its own use."""
    for found in GZIP.finditer(binary):
        with contextlib.suppress(zlib.error, DecodeError):
            text = zlib.decompressobj(31).decompress(binary[found.start() : found.start() + LARGEST])
            file = FileDescriptorProto.FromString(text)
            if file.package.startswith("k8s.io."):
                yield file


def openapi_name(name: str) -> str:
    """Name a message as OpenAPI does."""
    return name.lstrip(".").replace("k8s.io.", "io.k8s.", 1)


def fields(message: DescriptorProto, known: Any) -> dict[str, Any]:
    """Return number -> [name in JSON ("" when its fields stand in the parent), type, repeated, message]."""
    maps = {nested.name for nested in message.nested_type if nested.options.map_entry}
    found: dict[str, Any] = {}
    for field in message.field:
        repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
        if field.type != FieldDescriptorProto.TYPE_MESSAGE:
            found[str(field.number)] = [field.name, TYPES[field.type], repeated, ""]
        elif field.type_name.rpartition(".")[2] in maps:
            entry = next(nested for nested in message.nested_type if nested.name == field.type_name.rpartition(".")[2])
            value = entry.field[1]
            found[str(field.number)] = [
                field.name,
                "map",
                False,
                TYPES.get(value.type) or openapi_name(value.type_name),
            ]
        else:
            name = field.name if known is None or field.name in known else ""
            found[str(field.number)] = [name, "message", repeated, openapi_name(field.type_name)]
    return found


def slice_v1(messages: dict[str, Any]) -> dict[str, Any]:
    """Derive EndpointSlice v1 from v1beta1; the conditions and hints that came after 1.20 are added to both."""
    zone = {"1": ["name", "text", False, ""]}
    for version in (BETA, V1):
        messages[version + "EndpointHints"] = {"1": ["forZones", "message", True, version + "ForZone"]}
        messages[version + "ForZone"] = zone
    messages[BETA + "EndpointConditions"] |= {
        "2": ["serving", "bool", False, ""],
        "3": ["terminating", "bool", False, ""],
    }
    for name in ("EndpointSlice", "Endpoint", "EndpointConditions", "EndpointPort"):
        messages[V1 + name] = json.loads(json.dumps(messages[BETA + name]).replace(BETA, V1))
    messages[V1 + "Endpoint"]["5"][0] = "deprecatedTopology"
    messages[V1 + "Endpoint"] |= {
        "7": ["zone", "text", False, ""],
        "8": ["hints", "message", False, V1 + "EndpointHints"],
    }
    messages[BETA + "Endpoint"]["7"] = ["hints", "message", False, BETA + "EndpointHints"]
    return messages


def main() -> int:
    """Read the program and the published OpenAPI document, write the numbers."""
    published = json.loads(Path(sys.argv[2]).read_text())["definitions"]
    every = {
        openapi_name(f"{file.package}.{message.name}"): message
        for file in descriptors(Path(sys.argv[1]).read_bytes())
        for message in file.message_type
    }
    messages: dict[str, Any] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in messages:
            messages[name] = fields(every[name], published.get(name, {}).get("properties"))
            waiting += [field[3] for field in messages[name].values() if field[3].startswith("io.k8s.")]
    messages[META + "ManagedFieldsEntry"]["8"] = ["subresource", "text", False, ""]
    text = json.dumps(slice_v1(messages), sort_keys=True, separators=(",", ":"))
    TARGET.write_text(text + "\n")
    print(f"{TARGET.name}: {len(messages)} messages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
