"""Loopback addresses for Services and pods.

One `headgate up` owns a range 127.A.0.0/16: Services live in 127.A.0.1 to 127.A.127.254, pods in 127.A.128.1 to
127.A.255.253. Two headgates side by side own different ranges; a listening socket on the last address guards one.
"""

import hashlib
import ipaddress
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from headgate.atomic_file import read_json, write_private
from headgate.errors import HeadgateError
from headgate.resources.meta import Value

Part = Literal["services", "pods"]
FIRST_RANGE, LAST_RANGE = 77, 126
GUARD_PORT = 15099
_THIRD_BYTES: dict[Part, range] = {"services": range(128), "pods": range(128, 256)}
_LISTEN = "0A"  # a socket's state in /proc/net/tcp
_HOSTS = 254  # the last byte is 1 to 254: some programs take .0 and .255 for networks and broadcasts
POD_ADDRESSES = len(_THIRD_BYTES["pods"]) * _HOSTS


class _Guards(Value, frozen=True, kw_only=True):
    """The guard sockets of one headgate, also those that only its children still hold."""

    boot: str
    inodes: tuple[int, ...]


class NoAddress(HeadgateError):
    """No loopback address, or no range of them, is free."""


class Addresses:
    """Who uses which address of the range 127.A.0.0/16. A user is any text; it keeps its address until released."""

    def __init__(self, a: int) -> None:
        self.range = a
        self._users: dict[str, str] = {}
        self._taken: dict[str, str] = {guard_address(a): "guard"}

    def covers(self, address: str, part: Part) -> bool:
        """Whether `address` may be given out in that part of the range."""
        octets = address.split(".")
        if not is_loopback(address) or len(octets) != 4 or int(octets[1]) != self.range:
            return False
        return int(octets[2]) in _THIRD_BYTES[part] and 0 < int(octets[3]) < 255

    def user(self, address: str) -> str:
        """Return who uses an address; empty when nobody does."""
        return self._taken.get(address, "")

    def take(self, user: str, part: Part) -> str:
        """Hold the address that `pick` returns. Raises NoAddress when all are used."""
        return self.hold(user, self.pick(user, part))

    def pick(self, user: str, part: Part) -> str:
        """Return the user's address, or a free one, which stays free until `hold`.

        The same name gets the same address on every machine, as a rule. Raises NoAddress when all are used.
        """
        if user in self._users:
            return self._users[user]
        octets = _THIRD_BYTES[part]
        size = len(octets) * _HOSTS
        start = int.from_bytes(hashlib.sha256(user.encode()).digest()[:8], "big")
        for step in range(size):
            third, host = divmod((start + step) % size, _HOSTS)
            address = f"127.{self.range}.{octets[third]}.{host + 1}"
            if address not in self._taken:
                return address
        raise NoAddress(f"all {size} loopback addresses for {part} are used; delete some")

    def hold(self, user: str, address: str) -> str:
        """Note that `user` has `address`. Raises NoAddress when another user has it."""
        holder = self._taken.get(address, user)
        if holder != user:
            raise NoAddress(f"address {address} is used by {holder}")
        self._users[user] = address
        self._taken[address] = user
        return address

    def release(self, user: str) -> None:
        """Note that `user` is gone; nothing happens when it has no address."""
        if self._users.pop(user, None):
            self._taken = {address: holder for address, holder in self._taken.items() if holder != user}


def is_loopback(address: str) -> bool:
    """Whether `address` is an IPv4 loopback address."""
    try:
        return ipaddress.IPv4Address(address).is_loopback
    except ValueError:
        return False


def guard_address(a: int) -> str:
    """Return the address whose guard port says that range 127.`a` is in use."""
    return f"127.{a}.255.254"


def claim_range(preferred: int | None = None, *, record: Path | None = None) -> tuple[int, socket.socket]:
    """Claim a free range 127.A.0.0/16 for as long as the socket, or a copy that a child inherits, stays open.

    The preferred range is tried first. With `record`, a file of this headgate's own, a range that only its own
    children of an earlier life hold counts as free: after a crash it is claimed again beside them.

    Raises NoAddress when every range has an owner.
    """
    known = _recorded(record)
    others: Iterable[int] = (a for a in range(FIRST_RANGE, LAST_RANGE + 1) if a != preferred)
    for a in (*(() if preferred is None else (preferred,)), *others):
        guard = _guard(a, known)
        if guard is not None:
            if record:
                inodes = (known & _listeners(a)) | {os.fstat(guard.fileno()).st_ino}
                write_private(record, msgspec.json.encode(_Guards(boot=_boot(), inodes=tuple(sorted(inodes)))))
            return a, guard
    raise NoAddress(
        f"no range from 127.{FIRST_RANGE}.0.0/16 to 127.{LAST_RANGE}.0.0/16 is free: "
        f"other headgates, or another program on port {GUARD_PORT}, hold them; stop one"
    )


def _guard(a: int, known: frozenset[int]) -> socket.socket | None:
    guard = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listeners = _listeners(a)
    try:
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Sockets of one user share a port when both allow it. Each allows it once it is bound, so that its own next
        # life may join; it asks for it before only when all that listen there are known as its own.
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(bool(listeners) and listeners <= known))
        guard.bind((guard_address(a), GUARD_PORT))
        guard.listen(1)
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        guard.close()
        return None
    guard.set_inheritable(True)
    return guard


def _listeners(a: int) -> frozenset[int]:
    """Return the inodes of the sockets that guard a range (proc(5), /proc/net/tcp)."""
    packed = int.from_bytes(socket.inet_aton(guard_address(a)), sys.byteorder)
    place = f"{packed:08X}:{GUARD_PORT:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return frozenset(int(row[9]) for row in rows if row[1] == place and row[3] == _LISTEN)


def _recorded(record: Path | None) -> frozenset[int]:
    found = read_json(record, _Guards) if record else None
    return frozenset(found.inodes) if found and found.boot == _boot() else frozenset()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
