"""Print the bytes of a transparent sidecar's first configuration, by resource type and by field."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.fleet_plane import mesh
from benchmarks.pods import WorkloadAuthority
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from tests.make.values import snapshot

from headgate.compiler.compile import compile_mesh
from headgate.envoy import descriptors, pb
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import project, sidecar
from headgate.settings import Settings

LEAST = 10  # bytes per Service; smaller fields are not printed
DEPTH = 5


class Scale(NamedTuple):
    """The number of Services, and of pods with sidecars."""

    services: int


USUAL = Scale(services=1000)
SMALLEST = Scale(services=3)


async def measure(scale: Scale) -> None:
    """Print the bytes per Service."""
    found = compile_mesh(snapshot(*mesh(scale.services, scale.services)), Settings()).mesh
    workload = found.workloads[0]
    config = encode(project(found, sidecar(workload), WorkloadAuthority().credential(workload)), Memo())
    total = 0
    for type_url, resources in config.items():
        size = sum(len(encoded.body) for encoded in resources.values())
        total += size
        print(f"{size / scale.services:7,.0f}  {type_url.rpartition('.')[2]} ({len(resources):,})")
        fields: Counter[tuple[str, ...]] = Counter()
        for encoded in resources.values():
            for path, length in _fields(pb.Resource.FromString(encoded.body), ()):
                fields[path] += length
        for path, length in sorted(fields.items()):
            if length >= LEAST * scale.services:
                print(f"{length / scale.services:7,.0f}  {'  ' * len(path)}{path[-1]}")
    print(f"{total / scale.services:7,.0f}  bytes for each of {scale.services:,} Services")


def _fields(message: Message, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the nested fields of a message with their lengths; an Any counts as the message in it."""
    for field, value in message.ListFields():
        path = (*above, field.name)
        for item in value if field.is_repeated else (value,):
            if not isinstance(item, Message):
                yield path, len(item) if isinstance(item, str | bytes) else 1
                continue
            yield path, item.ByteSize()
            if len(path) < DEPTH:
                yield from _fields(_unpacked(item), path)


def _unpacked(message: Message) -> Message:
    if not isinstance(message, pb.Any):
        return message
    name = message.type_url.rpartition("/")[2]
    return GetMessageClass(descriptors.pool().FindMessageTypeByName(name)).FromString(message.value)
