"""Allocates addresses to Services and pods: loopback addresses, or those of the pods' own network.

Each `headgate up` owns a range 127.A.0.0/16: Services get 127.A.0.1 to 127.A.127.254, pods 127.A.128.1 to 127.A.255.253.
A listening socket on 127.A.255.254, the guard, reserves the range: a second headgate can't bind that address, so it claims
another range. When pods have networks of their own, the addresses are those of 10.A.0.0/16, and the guard is the same.
"""

import hashlib
import ipaddress
import os
import socket
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from headgate.atomic_file import read_json, write_private
from headgate.errors import HeadgateError
from headgate.resources.meta import Value

Part = Literal["services", "pods"]
PodNetworking = Literal["host", "pod"]
"""Whether pods share the machine's network, or have networks of their own."""
_FIRST_BYTES: dict[PodNetworking, int] = {"host": 127, "pod": 10}
FIRST_RANGE, LAST_RANGE = 77, 126
ALL_RANGES = frozenset(range(FIRST_RANGE, LAST_RANGE + 1))
OVERLAPPING = (
    f"routes of this machine overlap all ranges from 10.{FIRST_RANGE}.0.0/16 to 10.{LAST_RANGE}.0.0/16 (`ip route show table all`); "
    "remove a route"
)
GUARD_PORT = 15099
_THIRD_BYTES: dict[Part, range] = {"services": range(128), "pods": range(128, 256)}
_LISTEN = "0A"  # the state of a listening socket in /proc/net/tcp
# The number of usable last bytes, 1 to 254. Some programs treat .0 and .255 as network and broadcast addresses.
_HOSTS = 254
POD_ADDRESSES = len(_THIRD_BYTES["pods"]) * _HOSTS


class _GuardRecord(Value, frozen=True, kw_only=True):
    """The content of the file that lists guard sockets by inode. The list is valid until a reboot changes `boot`."""

    boot: str
    inodes: tuple[int, ...]


class NoAddress(HeadgateError):
    """No loopback address or range is free, or the requested address has another owner."""


class AddressPool:
    """Reserves addresses of the range 127.A.0.0/16, or 10.A.0.0/16, for owners until `release`.

    An owner is a text such as `Service shop/web`. `prefix` has the first two bytes of all addresses, with dots.
    """

    def __init__(self, a: int, networking: PodNetworking = "host") -> None:
        self.prefix = f"{_FIRST_BYTES[networking]}.{a}."
        self._addresses: dict[str, str] = {}
        self._owners: dict[str, str] = {guard_address(a): "guard", gateway_address(a): "the machine"}

    def covers(self, address: str, part: Part) -> bool:
        """Return whether `address` belongs to `part` of the range: services or pods."""
        octets = address.split(".")
        if range_of(address) is None or not address.startswith(self.prefix):
            return False
        return int(octets[2]) in _THIRD_BYTES[part] and 0 < int(octets[3]) < 255

    def owner(self, address: str) -> str:
        """Return the owner of an address; empty when the address is free."""
        return self._owners.get(address, "")

    def allocate(self, owner: str, part: Part) -> str:
        """Select an address as `pick` does, reserve it and return it. Raises NoAddress when all addresses are in use."""
        return self.reserve(owner, self.pick(owner, part))

    def pick(self, owner: str, part: Part) -> str:
        """Return the owner's address; without one, return a free address and do not reserve it.

        A hash of `owner` selects the address, so an owner usually gets the same address on every machine. Raises NoAddress
        when all addresses are in use.
        """
        if owner in self._addresses:
            return self._addresses[owner]
        octets = _THIRD_BYTES[part]
        size = len(octets) * _HOSTS
        start = int.from_bytes(hashlib.sha256(owner.encode()).digest()[:8], "big")
        for step in range(size):
            third, host = divmod((start + step) % size, _HOSTS)
            address = f"{self.prefix}{octets[third]}.{host + 1}"
            if address not in self._owners:
                return address
        raise NoAddress(f"all {size} addresses for {part} are in use; delete some {part}")

    def reserve(self, owner: str, address: str) -> str:
        """Reserve `address` for `owner` and return it. Raises NoAddress when the address has another owner."""
        current = self._owners.get(address, owner)
        if current != owner:
            raise NoAddress(f"address {address} is used by {current}")
        self._addresses[owner] = address
        self._owners[address] = owner
        return address

    def release(self, owner: str) -> None:
        """Free the address of `owner`, if it has one."""
        if self._addresses.pop(owner, None):
            self._owners = {address: current for address, current in self._owners.items() if current != owner}


def range_of(address: str) -> int | None:
    """Return A of an address that a headgate may have allocated: a loopback address, or one of 10.A.0.0/16; else None."""
    try:
        packed = ipaddress.IPv4Address(address).packed
    except ValueError:
        return None
    is_ours = packed[0] == _FIRST_BYTES["host"] or (
        packed[0] == _FIRST_BYTES["pod"] and FIRST_RANGE <= packed[1] <= LAST_RANGE
    )
    return packed[1] if is_ours else None


def gateway_address(a: int) -> str:
    """Return the machine's address in the pod network of range A."""
    return f"{_FIRST_BYTES['pod']}.{a}.255.254"


def machine_side(address: str) -> str:
    """Return the loopback address at which the machine of a headgate without root reaches 10.A.x.y: 127.A.x.y. Other addresses are returned unchanged."""
    is_ours = range_of(address) is not None and address.startswith(f"{_FIRST_BYTES['pod']}.")
    return f"{_FIRST_BYTES['host']}.{address.partition('.')[2]}" if is_ours else address


def machine_address(address: str) -> str:
    """Return the address at which a pod, by its own address, reaches programs of the machine that listen on all addresses."""
    a = range_of(address)
    return gateway_address(a) if a is not None and address.startswith(f"{_FIRST_BYTES['pod']}.") else "127.0.0.1"


def is_claimed(a: int) -> bool:
    """Return whether a headgate, or a proxy that it has started, has the guard socket of a range."""
    return bool(_listeners(a))


def guard_address(a: int) -> str:
    """Return the address of the guard socket of range 127.`a`.0.0/16."""
    return f"127.{a}.255.254"


def claim_range(
    preferred: int | None = None, *, record: Path | None = None, without: Collection[int] = ()
) -> tuple[int, socket.socket]:
    """Claim a free range 127.A.0.0/16; return A and the guard socket.

    The claim lasts while the socket, or a copy that a child process inherits, is open. The preferred range is tried first,
    and the ranges `without` are not tried.
    `record` is the file that lists headgate's guard sockets. With it, a range also counts as free when only child processes
    of an earlier headgate with the same file have the guard open. So headgate gets its range back after a crash.

    Raises NoAddress when all ranges are in use.
    """
    guards = _recorded(record)
    remaining: Iterable[int] = (a for a in range(FIRST_RANGE, LAST_RANGE + 1) if a != preferred)
    for a in (*(() if preferred is None else (preferred,)), *remaining):
        if a in without:
            continue
        guard = _open_guard(a, guards)
        if guard is not None:
            if record:
                inodes = (guards & _listeners(a)) | {os.fstat(guard.fileno()).st_ino}
                write_private(record, msgspec.json.encode(_GuardRecord(boot=_boot(), inodes=tuple(sorted(inodes)))))
            return a, guard
    if frozenset(without) >= ALL_RANGES:
        raise NoAddress(OVERLAPPING)
    raise NoAddress(
        f"all ranges from 127.{FIRST_RANGE}.0.0/16 to 127.{LAST_RANGE}.0.0/16 are in use: other headgates, or another "
        f"program, listen on their port {GUARD_PORT}; stop one of them"
    )


def _open_guard(a: int, guards: frozenset[int]) -> socket.socket | None:
    guard = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listeners = _listeners(a)
    try:
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Sockets of one user can share a port if all of them have SO_REUSEPORT. Each guard gets the option after its bind,
        # so that the next start can bind the port too. Before its bind it gets the option only if all listeners on the port
        # are guards of our own, recorded by an earlier start.
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(bool(listeners) and listeners <= guards))
        guard.bind((guard_address(a), GUARD_PORT))
        guard.listen(1)
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        guard.close()
        return None
    guard.set_inheritable(True)
    return guard


def _listeners(a: int) -> frozenset[int]:
    """Return the inodes of the guard sockets of a range, read from proc(5)."""
    packed = int.from_bytes(socket.inet_aton(guard_address(a)), sys.byteorder)
    address = f"{packed:08X}:{GUARD_PORT:04X}"
    rows = (line.split() for line in Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:])
    return frozenset(int(row[9]) for row in rows if row[1] == address and row[3] == _LISTEN)


def _recorded(record: Path | None) -> frozenset[int]:
    saved = read_json(record, _GuardRecord) if record else None
    return frozenset(saved.inodes) if saved and saved.boot == _boot() else frozenset()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
