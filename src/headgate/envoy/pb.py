"""Envoy's messages as typed classes: `pb.Cluster(name="a")`, `pb.pack(pb.Router())` (ADR 0001).

The names are the table `descriptors.NAMES`; the types are in `pb.pyi`, so a wrong field is a type error before it is a
`ValueError`. Classes are made when they are first used.
"""

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

from headgate.envoy import descriptors


def type_url(message: type[Message] | Message) -> str:
    """Return what names a message's type in an `Any` and in discovery requests."""
    return "type.googleapis.com/" + message.DESCRIPTOR.full_name


def pack(message: Message) -> Message:
    """Wrap a message for a `typed_config` field; equal messages give equal bytes."""
    return descriptors.find("Any")(type_url=type_url(message), value=message.SerializeToString(deterministic=True))


def __getattr__(name: str) -> type[Message] | EnumTypeWrapper:
    """Return the class or enum of a flat name, and keep it as an attribute of this module."""
    if name not in descriptors.NAMES:
        raise AttributeError(f"headgate.envoy.pb has no {name!r}; the table of names is in headgate.envoy.descriptors")
    found = descriptors.find(name)
    globals()[name] = found
    return found
