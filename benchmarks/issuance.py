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
from typing import NamedTuple

from headgate.identity.authority import make_signer, new_root, sign
from headgate.identity.credentials import Credentials, Schedule
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.issuers import CertificateSpec
from headgate.identity.keys import FileKeyStore
from headgate.latest import until

DOMAIN = "cluster.local"
LIFETIME = timedelta(hours=24)
TICK_S = 0.001


class Scale(NamedTuple):
    """The number of proxies with a certificate each, and of new root certificates."""

    proxies: int
    rounds: int


USUAL = Scale(proxies=1000, rounds=5)
SMALLEST = Scale(proxies=2, rounds=1)


def wanted(number: int) -> CertificateSpec:
    return CertificateSpec(identity=f"spiffe://{DOMAIN}/ns/default/sa/account-{number}")


def per_second(certificates: int) -> float:
    """Return how many certificates one thread issues per second, each with its own key."""
    signer = make_signer(new_root(DOMAIN, time.time()), "the benchmark")
    begin = time.perf_counter()
    for number in range(certificates):
        sign(signer, wanted(number), time.time(), LIFETIME)
    return certificates / (time.perf_counter() - begin)


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


async def measure(scale: Scale) -> None:
    """Run the benchmark and print the results."""
    rates = [per_second(scale.proxies) for _ in range(scale.rounds)]
    print(f"certificates per second, one thread: {statistics.median(rates):,.0f} (median of {scale.rounds})")
    with tempfile.TemporaryDirectory(prefix="hg") as directory:
        issuer = EmbeddedIssuer(FileKeyStore(Path(directory) / "ca"), DOMAIN, clock=time.time)
        credentials = Credentials(issuer, Schedule(clock=time.time))
        running = asyncio.create_task(credentials.run())
        async with blocked() as late:
            begin = time.perf_counter()
            credentials.set_wanted({f"sidecar/default/pod-{number}": wanted(number) for number in range(scale.proxies)})
            await until(lambda: len(credentials.current.get()) == scale.proxies, credentials.current)
            report(f"{scale.proxies} certificates, the first ones", time.perf_counter() - begin, late)
        for _ in range(scale.rounds):
            await renew(issuer, credentials, scale.proxies)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def renew(issuer: EmbeddedIssuer, credentials: Credentials, proxies: int) -> None:
    """Rotate to a new root certificate, and wait until every certificate is issued by the new root."""
    await issuer.add_next("")
    async with blocked() as late:
        begin = time.perf_counter()
        await issuer.promote_next()
        await until(lambda: not credentials.outdated(), credentials.current)
        report(f"{proxies} certificates, a new root", time.perf_counter() - begin, late)
    await issuer.remove_previous()


def report(what: str, seconds: float, late: list[float]) -> None:
    """Print a row: the time of the renewal, and the delays of the periodic task."""
    late.sort()
    print(
        f"{what:34} {seconds:6.2f} s   other tasks wait {late[len(late) // 2]:5.2f} ms (median),"
        f" {late[len(late) * 99 // 100]:5.2f} ms (p99), {late[-1]:5.2f} ms (longest)"
    )
