"""Measure how many certificates are signed per second, and how long 1000 renewals at once block the event loop.

When the root is rotated, the certificates of all proxies are due at the same time. A task that is scheduled every
millisecond measures for how long the event loop was blocked.
"""

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from headgate.identity.authority import make_signer, new_root, sign
from headgate.identity.credentials import Credentials, Schedule
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.issuers import CertificateSpec
from headgate.identity.keys import FileKeyStore
from headgate.latest import until

DOMAIN = "cluster.local"
LIFETIME = timedelta(hours=24)
PROXIES = 1000
ROUNDS = 5
TICK_S = 0.001


def wanted(number: int) -> CertificateSpec:
    return CertificateSpec(identity=f"spiffe://{DOMAIN}/ns/default/sa/account-{number}")


def per_second() -> float:
    """Return how many certificates one thread issues per second, each with its own key."""
    signer = make_signer(new_root(DOMAIN, time.time()), "the benchmark")
    begin = time.perf_counter()
    for number in range(PROXIES):
        sign(signer, wanted(number), time.time(), LIFETIME)
    return PROXIES / (time.perf_counter() - begin)


@contextlib.asynccontextmanager
async def blocked() -> AsyncIterator[list[float]]:
    """Collect the delays of a periodic task in milliseconds during the `async with` block."""
    late: list[float] = []

    async def tick() -> None:
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            late.append((time.perf_counter() - due) * 1000)

    task = asyncio.create_task(tick())
    await asyncio.sleep(0)
    yield late
    task.cancel()


async def measure() -> None:
    """Run the benchmark and print the results."""
    found = [per_second() for _ in range(ROUNDS)]
    print(f"certificates per second, one thread: {statistics.median(found):,.0f} (median of {ROUNDS})")
    with tempfile.TemporaryDirectory(prefix="hg") as directory:
        issuer = EmbeddedIssuer(FileKeyStore(Path(directory) / "ca"), DOMAIN, clock=time.time)
        credentials = Credentials(issuer, Schedule(clock=time.time))
        running = asyncio.create_task(credentials.run())
        async with blocked() as late:
            begin = time.perf_counter()
            credentials.set_wanted({f"sidecar/default/pod-{number}": wanted(number) for number in range(PROXIES)})
            await until(lambda: len(credentials.current.get()) == PROXIES, credentials.current)
            report("the first ones", time.perf_counter() - begin, late)
        for _ in range(ROUNDS):
            await renew(issuer, credentials)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def renew(issuer: EmbeddedIssuer, credentials: Credentials) -> None:
    """Rotate to a new root certificate, and wait until every certificate is issued by the new root."""
    await issuer.add_next("")
    async with blocked() as late:
        begin = time.perf_counter()
        await issuer.promote_next()
        await until(lambda: not credentials.outdated(), credentials.current)
        report("a new root", time.perf_counter() - begin, late)
    await issuer.remove_previous()


def report(what: str, seconds: float, late: list[float]) -> None:
    """Print a row: the time of the renewal, and the delays of the periodic task."""
    late.sort()
    print(
        f"{PROXIES} certificates, {what:15} {seconds:6.2f} s   other tasks wait {late[len(late) // 2]:5.2f} ms (median),"
        f" {late[len(late) * 99 // 100]:5.2f} ms (p99), {late[-1]:5.2f} ms (longest)"
    )
