"""What happens to a request and its response on the way, besides the choice of a backend."""

from typing import Literal

from headgate.model.refs import PortRef
from headgate.resources.meta import Value


class HeaderEdit(Value, frozen=True, kw_only=True):
    """Changes of headers: `set` replaces, `add` appends, each as (name, value); `remove` are names."""

    set: tuple[tuple[str, str], ...] = ()
    add: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


class PathEdit(Value, frozen=True, kw_only=True):
    """A new path: all of it, or instead of the prefix that the route matched."""

    kind: Literal["full", "prefix"]
    value: str


class Rewrite(Value, frozen=True, kw_only=True):
    """Another host or path for the backend."""

    hostname: str = ""
    path: PathEdit | None = None


class Redirect(Value, frozen=True, kw_only=True):
    """The answer is another address; what is empty stays as the request has it. Port 0 is none of its own."""

    status: int = 302
    scheme: str = ""
    hostname: str = ""
    port: int = 0
    path: PathEdit | None = None


class Filters(Value, frozen=True, kw_only=True):
    """Changes that a route, or one of its backends, makes."""

    request: HeaderEdit | None = None
    response: HeaderEdit | None = None
    rewrite: Rewrite | None = None


NO_FILTERS = Filters()


class Timeouts(Value, frozen=True, kw_only=True):
    """Milliseconds for the whole request, and for each attempt at a backend; 0 is no limit."""

    request: int = 0
    backend: int = 0


class Side(Value, frozen=True, kw_only=True):
    """Slots of users beside each other, and where they go: to `ref`, or, without one, to an error with `status`."""

    slots: int
    ref: PortRef | None = None
    status: int = 503


class Sticky(Value, frozen=True, kw_only=True):
    """What identifies a user, whose side of a split stays: a cookie (issued when absent), a header, or the address.

    `sides` are all slots of `model/slots.py` in their order.
    """

    kind: Literal["cookie", "header", "source"]
    name: str = ""
    sides: tuple[Side, ...] = ()
