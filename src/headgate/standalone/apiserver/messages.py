"""Classes of Kubernetes' own protobuf messages, and of OpenAPI documents; tools/core_messages.py writes their descriptors."""

import zlib
from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

INLINE = "-"
"""The JSON name of a field whose own fields stand in its parent in JSON."""


@cache
def find(name: str) -> Any:
    """Return the class of a message. Raises KeyError when there is none of that name."""
    return GetMessageClass(_pool().FindMessageTypeByName(name))


@cache
def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    content = zlib.decompress(files(__package__).joinpath("messages.fds.z").read_bytes())
    for file in FileDescriptorSet.FromString(content).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool
