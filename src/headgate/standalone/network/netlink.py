"""Netlink sockets of the current network namespace, with OSErrors."""

import contextlib
import errno
from collections.abc import Iterator
from typing import Any

_GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.EADDRNOTAVAIL})


@contextlib.contextmanager
def netlink() -> Iterator[Any]:
    """Open a netlink socket (pyroute2.IPRoute) in the network namespace of this thread. Raises OSError."""
    from pyroute2 import IPRoute  # noqa: PLC0415 - it takes 0.5 s, and most commands need no networks
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    try:
        with IPRoute() as opened:
            yield opened
    except NetlinkError as error:
        raise OSError(error.code, f"the kernel rejects a change to the network: {error.args[-1]}") from error


def ensure(change: Any, *arguments: Any, **fields: Any) -> None:
    """Make a change by netlink, unless its result exists already. Raises OSError."""
    _change(frozenset({errno.EEXIST}), change, *arguments, **fields)


def remove(change: Any, *arguments: Any, **fields: Any) -> None:
    """Make a change by netlink that removes something, unless it is gone already. Raises OSError."""
    _change(_GONE, change, *arguments, **fields)


def _change(ignored: frozenset[int], change: Any, *arguments: Any, **fields: Any) -> None:
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    try:
        change(*arguments, **fields)
    except NetlinkError as error:
        if error.code not in ignored:
            raise


def index_of(opened: Any, device: str) -> int:
    """Return the index of a network device. Raises OSError if it does not exist."""
    indexes = opened.link_lookup(ifname=device)
    if not indexes:
        raise OSError(errno.ENODEV, f"the network device {device} does not exist")
    return int(indexes[0])
