"""Tests of the certificates of all proxies: issuance, renewal, and failures."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.identity.world import DAY, START, FakeIssuer, Time, settle, wanted

from headgate.identity.certificates import expiry
from headgate.identity.credentials import Credentials, jitter
from headgate.identity.issuers import CertificateSpec

HOUR = 3600.0


class World:
    def __init__(self) -> None:
        self.time = Time()
        self.issuer = FakeIssuer(self.time)
        self.credentials = Credentials(self.issuer, self.time.schedule())

    async def want(self, **nodes: CertificateSpec) -> None:
        self.credentials.set_wanted(nodes)
        await settle()

    def chain(self, node: str) -> str:
        return self.credentials.current.get()[node].chain


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    running = asyncio.create_task(world.credentials.run())
    yield world
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_new_proxy_gets_a_certificate_at_once_and_a_removed_proxy_loses_it(world: World) -> None:
    await world.want(a=wanted("a"), b=wanted("b"))
    assert set(world.credentials.current.get()) == {"a", "b"}
    assert world.credentials.current.get()["a"].roots == world.issuer.roots.get()
    await world.want(b=wanted("b"))
    assert set(world.credentials.current.get()) == {"b"}
    await world.time.advance(2 * DAY)
    assert world.issuer.requests.count("spiffe://cluster.local/ns/default/sa/a") == 1


async def test_a_certificate_is_renewed_between_half_and_six_tenths_of_its_lifetime(world: World) -> None:
    await world.want(a=wanted("a"))
    first = world.chain("a")
    await world.time.advance(12 * HOUR - 1)
    assert world.chain("a") == first
    await world.time.advance(0.1 * 24 * HOUR + 2)
    assert world.chain("a") != first
    assert len(world.issuer.requests) == 2


async def test_renewals_of_proxies_are_spread_and_the_time_of_each_proxy_is_constant(world: World) -> None:
    nodes = [f"sidecar/default/web-{number}" for number in range(40)]
    await world.want(**{node: wanted() for node in nodes})
    before = world.credentials.current.get()
    await world.time.advance(13.2 * HOUR)
    renewed = sum(world.credentials.current.get()[node] != before[node] for node in nodes)
    assert 8 < renewed < 32
    assert jitter("a") == jitter("a") != jitter("b")


async def test_a_failed_request_is_retried_and_does_not_affect_other_proxies(world: World) -> None:
    world.issuer.fails = lambda item: item.identity.endswith("/bad")
    await world.want(bad=wanted("bad"), good=wanted("good"))
    assert set(world.credentials.current.get()) == {"good"}
    assert world.credentials.faults.get() == {
        "bad": "the signer does not answer; restart it; it has no certificate from this run of headgate: its calls with"
        " mutual TLS fail, at the latest when the certificate from an earlier run expires"
    }
    await world.time.advance(10 * 60)
    tries = len(world.issuer.requests) - 1
    assert 10 < tries < 30  # retries with backoff, at least once a minute
    world.issuer.fails = lambda _: False
    await world.time.advance(60)
    assert set(world.credentials.current.get()) == {"bad", "good"}
    assert world.credentials.faults.get() == {}


async def test_an_expired_certificate_stays_until_there_is_a_new_one(world: World) -> None:
    """Peers reject an expired certificate; without a certificate a proxy might fall back to plaintext."""
    await world.want(a=wanted("a"))
    first = world.chain("a")
    world.issuer.fails = lambda _: True
    await world.time.advance(20 * HOUR)
    assert world.chain("a") == first
    assert "its certificate is valid until 2027-01-16T08:00:00Z" in world.credentials.faults.get()["a"]
    await world.time.advance(5 * HOUR)
    assert world.chain("a") == first
    assert "its certificate expired at 2027-01-16T08:00:00Z, so its calls" in world.credentials.faults.get()["a"]


async def test_a_certificate_with_old_dns_names_stays_until_it_is_replaced(world: World) -> None:
    await world.want(a=wanted("a"))
    first = world.chain("a")
    world.issuer.gate.clear()
    await world.want(a=wanted("a", "foo"))
    assert world.chain("a") == first
    world.issuer.gate.set()
    await settle()
    assert world.chain("a") != first


async def test_a_changed_identity_removes_the_certificate_at_once(world: World) -> None:
    await world.want(a=wanted("a"))
    world.issuer.gate.clear()
    await world.want(a=wanted("other"))
    assert world.credentials.current.get() == {}
    world.issuer.gate.set()
    await settle()
    assert set(world.credentials.current.get()) == {"a"}


async def test_a_changed_identity_cancels_the_request_in_progress(world: World) -> None:
    world.issuer.gate.clear()
    await world.want(a=wanted("old"))
    await world.want(a=wanted("new"))
    world.issuer.gate.set()
    await settle()
    assert world.issuer.requests == ["spiffe://cluster.local/ns/default/sa/new"]


async def test_a_new_authority_renews_all_certificates_and_new_roots_reach_all_proxies(world: World) -> None:
    nodes = {f"n{number}": wanted(f"n{number}") for number in range(50)}
    await world.want(**nodes)
    before = world.credentials.current.get()
    world.issuer.roots.set("old and new\n" + world.issuer.roots.get())
    await settle()
    given = world.credentials.current.get()
    assert all(given[node].roots.startswith("old and new") for node in nodes)
    assert all(given[node].chain == before[node].chain for node in nodes)
    world.issuer.replace()
    assert len(world.credentials.outdated()) == 50
    for _ in range(10):
        await settle()
    assert world.credentials.outdated() == []
    assert not {item.chain for item in world.credentials.current.get().values()} & {
        item.chain for item in before.values()
    }


async def test_a_certificate_that_the_old_authority_signs_during_the_change_is_not_used(world: World) -> None:
    world.issuer.gate.clear()
    await world.want(a=wanted("a"))
    world.issuer.replace()
    world.issuer.gate.set()
    await settle()
    assert world.issuer.requests == ["spiffe://cluster.local/ns/default/sa/a"] * 2
    assert world.credentials.outdated() == []


async def test_the_number_of_concurrent_requests_is_limited(world: World) -> None:
    world.issuer.gate.clear()
    await world.want(**{f"n{number}": wanted() for number in range(100)})
    assert world.issuer.concurrent == 16
    world.issuer.gate.set()
    for _ in range(10):
        await settle()
    assert world.issuer.max_concurrent == 16
    assert len(world.credentials.current.get()) == 100


async def test_nothing_is_published_or_requested_before_a_renewal_is_due(world: World) -> None:
    await world.want(a=wanted("a"))
    shown = []

    async def watch() -> None:
        async for current in world.credentials.current.changes():
            shown.append(current)  # noqa: PERF401 - the iterator never ends

    watching = asyncio.create_task(watch())
    await world.time.advance(11 * HOUR)
    watching.cancel()
    assert len(shown) == 1
    assert len(world.issuer.requests) == 1


async def test_renewals_have_a_minimum_interval_shortly_before_the_root_expires() -> None:
    """A certificate expires no later than its root, so its lifetime gets shorter with each renewal."""
    time = Time()
    issuer = FakeIssuer(time)
    credentials = Credentials(issuer, time.schedule(lifetime=timedelta(seconds=30)))
    running = asyncio.create_task(credentials.run())
    time.now = START + 365 * DAY - 20
    credentials.set_wanted({"a": wanted("a")})
    await settle()
    assert expiry(credentials.current.get()["a"].chain) == START + 365 * DAY
    await time.advance(19)
    assert 3 < len(issuer.requests) < 20
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_requests_succeed_again_after_the_authority_failed_for_days(world: World) -> None:
    world.issuer.fails = lambda _: True
    await world.want(a=wanted("a"))
    await world.time.advance(2 * DAY)
    world.issuer.fails = lambda _: False
    await world.time.advance(60)
    assert set(world.credentials.current.get()) == {"a"}
