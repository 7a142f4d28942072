"""Apply the redirection rules to the kernel's tables of the current network namespace, and remove them.

The rules of an IP family are one transaction, so a pod never has only a part of them. Only the rule by which a container
recognizes that the connections are redirected comes later, after the other rules are verified. A namespace without IPv6 gets no
IPv6 rules. In a namespace with IPv6, the command fails if it can't add IPv6 rules, because connections that are not
redirected would bypass mTLS.
"""

import errno
import fcntl
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headgate.errors import HeadgateError
from headgate.redirection.rules import (
    CHAINS,
    INBOUND_SOURCE,
    RedirectionRules,
    confirmation_transaction,
    own_rules,
    removal_transaction,
    rule_lines,
    update_transaction,
    without_confirmation,
)

VARIANTS = ("", "-nft", "-legacy")  # suffixes of the programs' names, the system's default first
TIMEOUT_S = 20
SYSTEM_PROGRAMS = "/usr/sbin:/sbin"  # Directories that are not in every user's PATH.
FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of include/linux/proc_ns.h.
INTERFACES_IPV6 = Path("/proc/thread-self/net/if_inet6")
_ADD, _REMOVE = 0x8916, 0x8936  # SIOCSIFADDR, SIOCDIFADDR.
_REQUEST = "=16sIi"  # The format of struct in6_ifreq: address, prefix length, index of the device.


class RedirectionError(HeadgateError):
    """The rules can't be read or changed; the message says why, and what to do."""


class Table(NamedTuple):
    """The nat table of one IP family: the path of iptables-save or ip6tables-save, and the output of this program."""

    family: str
    program: str
    saved: str


class FamilyOutcome(NamedTuple):
    """Whether the rules of one IP family were changed, and by which program."""

    family: str
    program: str
    changed: bool


def apply(rules: RedirectionRules) -> tuple[FamilyOutcome, ...]:
    """Apply the rules, replace those of an earlier run, and verify them. Raises RedirectionError."""
    _reject_host_network()
    tables = _tables()
    if len(tables) > 1:
        _change_loopback(_ADD, ignored=errno.EEXIST)
    texts = [rules.ipv4 if table.family == "IPv4" else rules.ipv6 for table in tables]
    for table, text in zip(tables, texts, strict=True):
        _apply(table, without_confirmation(text))
    # The application of a pod may start when all families have this rule, so it is the last step.
    return tuple(_confirm(table, text) for table, text in zip(tables, texts, strict=True))


def clean() -> tuple[FamilyOutcome, ...]:
    """Remove the rules that `apply` added from all tables, with each program that can read the table. Raises RedirectionError."""
    _reject_host_network()
    bases = _bases()
    outcomes = tuple(_clean(table) for base in bases for table in _readable_tables(base))
    if len(bases) > 1:
        _change_loopback(_REMOVE, ignored=errno.EADDRNOTAVAIL)
    return outcomes


def _change_loopback(request: int, *, ignored: int) -> None:
    """Add or remove the `lo` address from which the proxy's inbound side calls the application over IPv6.

    IPv4 has 16 million loopback addresses, of which the proxy uses 127.0.0.6. IPv6 has only one, which would not
    identify the proxy. Other machines cannot reach an address that is added to `lo`. `ignored` is the error number of
    the kernel if there is nothing to change.
    """
    address, _, length = INBOUND_SOURCE[6].partition("/")
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control:
            number = socket.if_nametoindex("lo")
            fcntl.ioctl(
                control, request, struct.pack(_REQUEST, socket.inet_pton(socket.AF_INET6, address), int(length), number)
            )
    except OSError as error:
        if error.errno != ignored:
            raise RedirectionError(
                f"the address {address} of the device lo can't be changed: {error.strerror}. The sidecar calls the"
                " application from this address. Run the command with the capability NET_ADMIN"
            ) from error


def _apply(table: Table, text: str) -> None:
    restore(table.program, update_transaction(text, table.saved))
    _verify(table, text)


def _confirm(table: Table, text: str) -> FamilyOutcome:
    restore(table.program, confirmation_transaction(text))
    return FamilyOutcome(table.family, Path(table.program).name, changed=rule_lines(text) != own_rules(table.saved))


def _clean(table: Table) -> FamilyOutcome:
    steps = removal_transaction(table.saved)
    if steps:
        restore(table.program, steps)
        if left := own_rules(_save(table.program)):
            raise RedirectionError(f"{table.program} still has {left[0]!r} after the removal; run the command again")
    return FamilyOutcome(table.family, Path(table.program).name, changed=bool(steps))


def _verify(table: Table, text: str) -> None:
    """Check each rule in the kernel: some kernels accept a rule and ignore the parts that they do not support."""
    lines = rule_lines(text)
    for line in lines:
        run_program(table.program, "-t", "nat", "-C", *line.split()[1:])
    present = own_rules(_save(table.program))
    if len(present) != len(lines):
        raise RedirectionError(
            f"{table.program} has {len(present)} of {len(lines)} rules: another program changes"
            f" {' and '.join(CHAINS)} at the same time. Stop it, and run the command again"
        )


def _tables() -> tuple[Table, ...]:
    """Return a table for each IP family: a table with headgate's rules, else that of the system's default program."""
    chosen = []
    for base in _bases():
        tables = _readable_tables(base)
        chosen.append(next((table for table in tables if own_rules(table.saved)), tables[0]))
    return tuple(chosen)


def _bases() -> tuple[str, ...]:
    return tuple("iptables" if version == 4 else "ip6tables" for version in pod_families())


def pod_families() -> tuple[int, ...]:
    """Return the versions of IP for which the current network namespace has rules: 4, and 6 if it has an IPv6 address."""
    return (4, 6) if has_ipv6(_read(INTERFACES_IPV6)) else (4,)


def has_ipv6(interfaces: str) -> bool:
    """Return whether a namespace has an IPv6 address other than loopback; a link-local address counts.

    `interfaces` is the content of /proc/net/if_inet6.
    """
    return any(line.split()[-1] != "lo" for line in interfaces.splitlines() if line.strip())


def _readable_tables(base: str) -> list[Table]:
    """Return the nat table as each installed program reads it, the system's default program first.

    `base` is `iptables` or `ip6tables`. Raises RedirectionError when no program can read a table.
    """
    family = "IPv6" if base.startswith("ip6") else "IPv4"
    readable: list[Table] = []
    failures: list[str] = []
    for program in _programs(base):
        try:
            readable.append(Table(family, program, _save(program)))
        except RedirectionError as error:
            failures.append(str(error))
    if not readable:
        raise RedirectionError(_unusable(base, failures))
    return readable


def _programs(base: str) -> list[str]:
    """Return the paths of the installed variants of a program, such as `iptables-nft`, that have a -save program."""
    by_version: dict[str, str] = {}
    for variant in VARIANTS:
        program, save = _path(base + variant), _path(f"{base}{variant}-save")
        if program and save:
            version = run_program(program, "--version").strip()
            by_version.setdefault(version, program)  # `iptables` is an alias for one variant
    return list(by_version.values())


def _path(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PROGRAMS}")


def _unusable(base: str, failures: Sequence[str]) -> str:
    if not failures:
        return f"{base} is not installed: install the package iptables in the image that runs this command"
    remedy = "run it as root with the capabilities NET_ADMIN and NET_RAW (an init container may have them)"
    if base == "ip6tables":
        remedy += ", load ip6table_nat on the node, or disable IPv6 in the pod (net.ipv6.conf.all.disable_ipv6=1)"
    return f"{base} can't be used: {'; '.join(failures)}. To fix this, {remedy}"


def _save(program: str) -> str:
    return run_program(f"{program}-save", "-t", "nat")


def restore(program: str, transaction: str) -> None:
    """Change tables by the -restore program of `iptables` or a variant, after other changes have ended. Raises RedirectionError."""
    run_program(f"{program}-restore", "--wait", "--noflush", stdin=transaction)


def run_program(*command: str, stdin: str = "") -> str:
    """Run a program of iptables, which changes the network namespace of this thread; return its output. Raises RedirectionError."""
    program = _path(command[0])
    if not program:
        raise RedirectionError(f"{command[0]} is not installed: install the package iptables")
    try:
        done = subprocess.run(  # noqa: S603 - paths of the programs named above
            (program, *command[1:]), input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise RedirectionError(f"{command[0]} can't be run: {error}") from error
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise RedirectionError(f"{' '.join(command)}: {said}")
    return done.stdout


def _reject_host_network() -> None:
    """Reject the machine's own network namespace: the rules are for pods."""
    if is_host(_link("/proc/self/ns/pid"), _inode("/proc/thread-self/net/dev"), _inode("/proc/1/net/dev")):
        raise RedirectionError(
            "this is the machine's own network namespace: all its TCP connections would go to a proxy that does not"
            " exist. Run the command in the pod's network namespace"
            " (ip netns exec, or an init container without hostNetwork)"
        )


def is_host(pid: str, net: int, first: int) -> bool:
    """Return whether this process is in the network namespace of the machine's first process.

    `pid` is the link /proc/self/ns/pid. `net` and `first` have the inodes of /proc/thread-self/net/dev and /proc/1/net/dev, 0
    if hidden. Each network namespace has its own inode, and unlike /proc/1/ns/net all users may read it. In a container
    the first process is the pod's own, so the answer is False.
    """
    return pid == FIRST_PID_NAMESPACE and bool(first) and net == first


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def _inode(path: str) -> int:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
