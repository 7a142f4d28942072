"""Helpers of the authority's tests: a fake clock, a fake issuer, fake proxies, and openssl."""

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from headgate.identity.authority import Authority, make_signer, new_root, sign
from headgate.identity.certificates import fingerprint
from headgate.identity.credentials import Schedule
from headgate.identity.issuers import CertificateSpec, IssueError
from headgate.identity.keys import StoredAuthority
from headgate.latest import Latest
from headgate.model.identities import Credential

START = 1_800_000_000.0
DOMAIN = "cluster.local"
DAY = 86_400.0


def wanted(account: str = "web", *subjects: str, domain: str = DOMAIN) -> CertificateSpec:
    return CertificateSpec(identity=f"spiffe://{domain}/ns/default/sa/{account}", subjects=subjects)


class Time:
    """A fake clock that only `advance` moves. It wakes each sleeping task when the task's time is reached."""

    def __init__(self) -> None:
        self.now = START
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._sleepers.append((self.now + seconds, woken))
        await woken.wait()

    async def advance(self, seconds: float) -> None:
        """Advance the clock, and run the tasks that wake up meanwhile."""
        await settle()
        end = self.now + seconds
        while due := [item for item in self._sleepers if item[0] <= end]:
            first = min(due, key=lambda item: item[0])
            self._sleepers.remove(first)
            self.now = max(self.now, first[0])
            first[1].set()
            await settle()
        self.now = end

    def schedule(self, **fields: timedelta) -> Schedule:
        return Schedule(clock=self.clock, sleep=self.sleep, **fields)


async def settle() -> None:
    """Run all tasks until each task waits. Work in threads is not awaited."""
    for _ in range(30):
        await asyncio.sleep(0)


class FakeIssuer:
    """An issuer without files and threads. Requests for which `fails` returns True fail."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.authority = new_root(DOMAIN, time.now)
        self.roots: Latest[str] = Latest(self.authority.certificate)
        self.signer: Latest[str] = Latest(fingerprint(make_signer(self.authority, "test").chain[0]))
        self.fault: Latest[str] = Latest("")
        self.requests: list[str] = []
        self.fails: Callable[[CertificateSpec], bool] = lambda _wanted: False
        self.gate = asyncio.Event()
        self.gate.set()
        self.concurrent = self.max_concurrent = 0

    async def issue(self, wanted: CertificateSpec, lifetime: timedelta) -> Credential:
        signer = make_signer(self.authority, "test")
        self.concurrent += 1
        self.max_concurrent = max(self.concurrent, self.max_concurrent)
        try:
            await self.gate.wait()
        finally:
            self.concurrent -= 1
        self.requests.append(wanted.identity)
        if self.fails(wanted):
            raise IssueError("the signer does not answer; restart it")
        leaf = sign(signer, wanted, self.time.now, lifetime)
        return Credential(chain=leaf.chain, key=leaf.key, roots=self.roots.get())

    async def run(self) -> None:
        await asyncio.Event().wait()

    def replace(self) -> None:
        """Sign with a new root from now on."""
        self.authority = new_root(DOMAIN, self.time.now)
        self.roots.set(self.roots.get() + self.authority.certificate)
        self.signer.set(fingerprint(make_signer(self.authority, "test").chain[0]))


class MemoryKeyStore:
    """A key store in memory."""

    location = "the test's memory"

    def __init__(self, stored: StoredAuthority | None = None) -> None:
        self.stored = stored
        self.saved: list[StoredAuthority] = []
        self.fault = ""

    async def load(self) -> StoredAuthority | None:
        return self.stored

    async def save(self, stored: StoredAuthority) -> None:
        if self.fault:
            raise IssueError(self.fault)
        self.stored = stored
        self.saved.append(stored)


class Holders:
    """Fake proxies that acknowledge certificates at once; those in `slow` only after `catch_up`."""

    def __init__(self) -> None:
        self.change_count: Latest[int] = Latest(0)
        self.holding: Mapping[str, Credential] = {}
        self.slow: set[str] = set()

    def lagging(self, credentials: Mapping[str, Credential]) -> Sequence[str]:
        for node, credential in credentials.items():
            if node not in self.slow:
                self.holding = {**self.holding, node: credential}
        return [node for node in credentials if self.holding.get(node) != credentials[node]]

    def catch_up(self) -> None:
        self.slow.clear()
        self.change_count.set(self.change_count.get() + 1)


def openssl(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run openssl; skip the test if it is not installed."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)


def verify(directory: Path, chain: str, roots: str, *options: str) -> str:
    """Return the error of `openssl verify -x509_strict` about a chain, empty if it is valid."""
    (directory / "chain.pem").write_text(chain)
    (directory / "roots.pem").write_text(roots)
    found = openssl(
        "verify", "-x509_strict", *options, "-CAfile", directory / "roots.pem",
        "-untrusted", directory / "chain.pem", directory / "chain.pem",
    )  # fmt: skip
    return "" if found.returncode == 0 else found.stderr


def root(now: float = START, domain: str = DOMAIN, **lifetime: float) -> Authority:
    return new_root(domain, now, timedelta(**lifetime)) if lifetime else new_root(domain, now)
