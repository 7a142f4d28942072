"""One resource of a proxy before it is rendered; what each file of renderers hands to `encode`."""

from collections.abc import Callable, Hashable
from typing import NamedTuple

from google.protobuf.message import Message

from headgate.envoy.config import TypeUrl


class Part(NamedTuple):
    """One resource to render: a function of its arguments alone, which makes the whole a key of the memo."""

    type_url: TypeUrl
    name: str
    render: Callable[..., Message]
    arguments: tuple[Hashable, ...]
    needs: tuple[str, ...] = ()
