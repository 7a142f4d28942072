"""Classes of protobuf messages in pools of their own, so that they do not conflict with the classes of other packages."""

import zlib

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass


def read_pool(compressed: bytes) -> DescriptorPool:
    """Return a pool with the descriptors in a compressed FileDescriptorSet."""
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(zlib.decompress(compressed)).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def message_class(pool: DescriptorPool, name: str) -> type[Message]:
    """Return the Python class of a message by its full name. Raises KeyError for an unknown name."""
    return GetMessageClass(pool.FindMessageTypeByName(name))
