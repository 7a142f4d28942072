"""Envoy's messages as typed classes: `pb.Cluster(name="a")`, `pb.pack(pb.Router())` (ADR 0001).

`descriptors.NAMES` lists them, and `pb.pyi` has their types, so mypy finds a wrong field before it raises
`ValueError`. Classes are created on first use.
"""

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

from headgate.envoy import descriptors


def type_url(message: type[Message] | Message) -> str:
    """Return the type URL of a message, as in `Any` and in discovery requests."""
    return "type.googleapis.com/" + message.DESCRIPTOR.full_name


def pack(message: Message) -> Message:
    """Pack a message into an `Any`, for `typed_config` fields. Equal messages give equal bytes."""
    return descriptors.find("Any")(type_url=type_url(message), value=message.SerializeToString(deterministic=True))


def __getattr__(name: str) -> type[Message] | EnumTypeWrapper:
    """Return the class or enum of a short name, and cache it as an attribute of this module."""
    if name not in descriptors.NAMES:
        raise AttributeError(f"headgate.envoy.pb has no {name!r}; the table of names is in headgate.envoy.descriptors")
    type_or_enum = descriptors.find(name)
    globals()[name] = type_or_enum
    return type_or_enum
