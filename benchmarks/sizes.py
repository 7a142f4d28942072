"""Print the bytes of a transparent sidecar's first configuration, by resource type and by field."""

from collections import Counter
from collections.abc import Iterator

from benchmarks.fleet_plane import mesh
from benchmarks.pods import Authority
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headgate.compiler.compile import compile_mesh
from headgate.envoy import descriptors, pb
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import project, sidecar
from headgate.plane.feed import snapshot_of
from headgate.resources.registry import key_of
from headgate.settings import Settings

SERVICES = 1000
LEAST = 10  # bytes per Service; smaller fields are not printed
DEPTH = 5


def count() -> None:
    """Print the bytes per Service."""
    found = compile_mesh(snapshot_of({key_of(item): item for item in mesh(SERVICES, SERVICES)}), Settings()).mesh
    workload = found.workloads[0]
    config = encode(project(found, sidecar(workload), Authority().credential(workload)), Memo())
    total = 0
    for type_url, resources in config.items():
        size = sum(len(encoded.body) for encoded in resources.values())
        total += size
        print(f"{size / SERVICES:7,.0f}  {type_url.rpartition('.')[2]} ({len(resources):,})")
        fields: Counter[tuple[str, ...]] = Counter()
        for encoded in resources.values():
            for path, length in _fields(pb.Resource.FromString(encoded.body), ()):
                fields[path] += length
        for path, length in sorted(fields.items()):
            if length >= LEAST * SERVICES:
                print(f"{length / SERVICES:7,.0f}  {'  ' * len(path)}{path[-1]}")
    print(f"{total / SERVICES:7,.0f}  bytes for each of {SERVICES:,} Services")


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
    if not isinstance(message, descriptors.find("Any")):
        return message
    name = message.type_url.rpartition("/")[2]
    return GetMessageClass(descriptors.pool().FindMessageTypeByName(name)).FromString(message.value)
