"""Write the protobuf descriptors of Kubernetes' kinds and of OpenAPI documents to standalone/apiserver/messages.fds.z.

Clients send typed objects in protobuf. The tool reads the descriptors from the binary of an older kube-apiserver (such
as 1.20), which embeds them, and changes them in two ways. Go pointers become optional fields, because zero differs from
a missing value. A field whose JSON fields are inlined into its parent gets the JSON name INLINE.

    python tools/core_messages.py "$KUBEBUILDER_ASSETS/kube-apiserver" v2.json
"""

import contextlib
import copy
import json
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.any_pb2 import Any as Any_
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import DecodeError

TARGET = Path(__file__).parent.parent / "src/headgate/standalone/apiserver/messages.fds.z"
GZIP = re.compile(b"\x1f\x8b\x08")
LARGEST = 400_000
INLINE = "-"
CORE, APPS, META = "k8s.io.api.core.v1.", "k8s.io.api.apps.v1.", "k8s.io.apimachinery.pkg.apis.meta.v1."
BETA, V1 = "k8s.io.api.discovery.v1beta1.", "k8s.io.api.discovery.v1."
ROOTS = (
    *(
        CORE + kind
        for kind in ("Namespace", "Node", "Service", "Pod", "ServiceAccount", "Secret", "ConfigMap", "Event")
    ),
    APPS + "Deployment",
    APPS + "ReplicaSet",
    BETA + "EndpointSlice",
    *(CORE + kind for kind in ("Endpoints", "LimitRange", "PersistentVolume", "PersistentVolumeClaim", "PodTemplate")),
    *(CORE + kind for kind in ("ReplicationController", "ResourceQuota")),
    *(APPS + kind for kind in ("DaemonSet", "StatefulSet")),
    *(f"k8s.io.api.networking.v1.{kind}" for kind in ("Ingress", "IngressClass", "NetworkPolicy")),
    *(f"k8s.io.api.rbac.v1.{kind}" for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")),
    "k8s.io.api.batch.v1.Job",
    "k8s.io.api.batch.v1beta1.CronJob",
    "k8s.io.api.policy.v1beta1.PodDisruptionBudget",
    "k8s.io.api.autoscaling.v1.HorizontalPodAutoscaler",
    "k8s.io.api.autoscaling.v2beta2.HorizontalPodAutoscaler",
    "k8s.io.api.scheduling.v1.PriorityClass",
    "k8s.io.api.storage.v1.StorageClass",
    "k8s.io.api.coordination.v1.Lease",
    "k8s.io.api.autoscaling.v1.Scale",
    "k8s.io.api.authorization.v1.SelfSubjectAccessReview",
    "k8s.io.api.authorization.v1.SelfSubjectRulesReview",
    META + "DeleteOptions",
    "k8s.io.api.policy.v1beta1.Eviction",
    "k8s.io.apimachinery.pkg.runtime.Unknown",
    "openapi.v2.Document",
)
POINTERS = frozenset(
    [
        "replicas",
        "terminationGracePeriodSeconds",
        "gracePeriodSeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
        "activeDeadlineSeconds",
        "runAsUser",
        "runAsGroup",
        "fsGroup",
        "tolerationSeconds",
        "maxSurge",
        "maxUnavailable",
        "partition",
        "priority",
        "defaultMode",
        "mode",
        "automountServiceAccountToken",
        "immutable",
        "ready",
        "serving",
        "terminating",
        "enableServiceLinks",
        "optional",
        "allowPrivilegeEscalation",
        "readOnlyRootFilesystem",
        "runAsNonRoot",
        "privileged",
        "shareProcessNamespace",
        "controller",
        "blockOwnerDeletion",
        "orphanDependents",
        "emptyDir",
        "allocateLoadBalancerNodePorts",
        "parallelism",
        "completions",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "manualSelector",
        "suspend",
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
        "minReplicas",
        "targetCPUUtilizationPercentage",
        "averageUtilization",
        "stabilizationWindowSeconds",
        "leaseDurationSeconds",
        "leaseTransitions",
        "allowVolumeExpansion",
        "storageClassName",
        "nanos",
        "seconds",
    ]
)


def descriptors(binary: bytes) -> Iterator[FileDescriptorProto]:
    """Yield the file descriptors that the program `binary` embeds in compressed form."""
    for found in GZIP.finditer(binary):
        with contextlib.suppress(zlib.error, DecodeError):
            text = zlib.decompressobj(31).decompress(binary[found.start() : found.start() + LARGEST])
            file = FileDescriptorProto.FromString(text)
            if file.package.startswith(("k8s.io.", "openapi.v2", "google.protobuf")):
                yield file


def reduced(message: DescriptorProto, published: Any) -> DescriptorProto:
    """Return a message without options; `published` has the properties of its OpenAPI schema, or None."""
    maps = {nested.name for nested in message.nested_type if nested.options.map_entry}
    made = DescriptorProto(name=message.name)
    made.oneof_decl.extend(message.oneof_decl)
    for nested in message.nested_type:
        made.nested_type.append(nested)
    for field in message.field:
        kept = made.field.add(name=field.name, number=field.number, type=field.type, label=field.label)
        if field.type_name:
            kept.type_name = field.type_name
        if field.HasField("oneof_index"):
            kept.oneof_index = field.oneof_index
        single = field.label != FieldDescriptorProto.LABEL_REPEATED
        is_message = field.type == FieldDescriptorProto.TYPE_MESSAGE and field.type_name.rpartition(".")[2] not in maps
        if is_message and published is not None and field.name not in published:
            kept.json_name = INLINE
        elif single and field.name in POINTERS:
            optional(made, kept)
    return made


def optional(message: DescriptorProto, field: FieldDescriptorProto) -> None:
    """Make a field optional as proto3 does: as the only field of a synthetic oneof."""
    field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
    message.oneof_decl.add(name=f"_{field.name}")


def add(message: DescriptorProto, number: int, name: str, type_name: str = "", *, repeated: bool = False) -> None:
    """Add a field of a Kubernetes release after 1.20: a string, or a message if `type_name` is given."""
    kind = FieldDescriptorProto.TYPE_MESSAGE if type_name else FieldDescriptorProto.TYPE_STRING
    label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, type=kind, label=label)
    if type_name:
        field.type_name = type_name


# Groups whose stable version came after 1.20 with the field numbers of a beta version.
STABLE = {
    BETA: V1,
    "k8s.io.api.batch.v1beta1.": "k8s.io.api.batch.v1.",
    "k8s.io.api.policy.v1beta1.": "k8s.io.api.policy.v1.",
    "k8s.io.api.autoscaling.v2beta2.": "k8s.io.api.autoscaling.v2.",
}


def stable(messages: dict[str, DescriptorProto]) -> None:
    """Derive the messages of stable versions from those of beta versions."""
    for old, new in STABLE.items():
        for name in [name for name in messages if name.startswith(old)]:
            made = copy.deepcopy(messages[name])
            for field in (field for part in (made, *made.nested_type) for field in part.field):
                if field.type_name:
                    field.type_name = field.type_name.replace(old, new)
            messages[name.replace(old, new)] = made
    add(messages["k8s.io.api.batch.v1.CronJobSpec"], 8, "timeZone")


def newer(messages: dict[str, DescriptorProto]) -> None:
    """Add the fields of releases after 1.20, and derive stable versions, such as EndpointSlice v1 from v1beta1."""
    add(messages[META + "ManagedFieldsEntry"], 8, "subresource")
    messages[BETA + "ForZone"] = DescriptorProto(name="ForZone")
    add(messages[BETA + "ForZone"], 1, "name")
    messages[BETA + "EndpointHints"] = DescriptorProto(name="EndpointHints")
    add(messages[BETA + "EndpointHints"], 1, "forZones", f".{BETA}ForZone", repeated=True)
    stable(messages)
    slices = messages[V1 + "Endpoint"]
    next(field for field in slices.field if field.number == 5).name = "deprecatedTopology"
    for nested in slices.nested_type:  # a map's entry type is named after its field
        nested.name = "DeprecatedTopologyEntry"
    next(field for field in slices.field if field.number == 5).type_name = f".{V1}Endpoint.DeprecatedTopologyEntry"
    add(slices, 7, "zone")
    add(slices, 8, "hints", f".{V1}EndpointHints")
    add(messages[BETA + "Endpoint"], 7, "hints", f".{BETA}EndpointHints")


def types_of(message: DescriptorProto) -> set[str]:
    """Return the full names of the messages that a message refers to, except its nested messages."""
    named = {field.type_name[1:] for part in (message, *message.nested_type) for field in part.field if field.type_name}
    return {name for name in named if f".{message.name}." not in name}


def files(messages: dict[str, DescriptorProto]) -> FileDescriptorSet:
    """Return one file for each protobuf package; each file comes after its dependencies."""
    made: dict[str, FileDescriptorProto] = {}
    for name, message in sorted(messages.items()):
        package = name.rpartition(".")[0]
        file = made.setdefault(package, FileDescriptorProto(name=package, package=package, syntax="proto3"))
        file.message_type.append(message)
        needed = {other.rpartition(".")[0] for other in types_of(message)} - {package, *file.dependency}
        file.dependency.extend(sorted(needed))
    found = FileDescriptorSet()
    while made:
        ready = [package for package, file in made.items() if not made.keys() & set(file.dependency)]
        found.file.extend(made.pop(package) for package in ready)
    return found


def main() -> int:
    """Read the kube-apiserver binary and its OpenAPI document; write the descriptors."""
    published = json.loads(Path(sys.argv[2]).read_text())["definitions"]
    every = {
        f"{file.package}.{message.name}": message
        for file in descriptors(Path(sys.argv[1]).read_bytes())
        for message in file.message_type
    }
    every["google.protobuf.Any"] = DescriptorProto()
    Any_.DESCRIPTOR.CopyToProto(every["google.protobuf.Any"])
    messages: dict[str, DescriptorProto] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in messages:
            schema = published.get(name.replace("k8s.io.", "io.k8s.", 1), {})
            messages[name] = reduced(every[name], schema.get("properties"))
            waiting += types_of(messages[name])
    newer(messages)
    TARGET.write_bytes(zlib.compress(files(messages).SerializeToString(deterministic=True), 9))
    print(f"{TARGET.name}: {len(messages)} messages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
