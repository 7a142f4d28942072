"""Tests of the certificates of all proxies: issuance, renewal, and failures."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.identity.fakes import DAY, START, FakeIssuer, Time, settle, wanted

from headgate.identity.certificates import expiry
from headgate.identity.credentials import Credentials, jitter
from headgate.identity.issuers import CertificateSpec

HOUR = 3600.0


class CredentialsRig:
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
async def rig() -> AsyncIterator[CredentialsRig]:
    rig = CredentialsRig()
    running = asyncio.create_task(rig.credentials.run())
    yield rig
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_new_proxy_gets_a_certificate_at_once_and_a_removed_proxy_loses_it(rig: CredentialsRig) -> None:
    await rig.want(a=wanted("a"), b=wanted("b"))
    assert set(rig.credentials.current.get()) == {"a", "b"}
    assert rig.credentials.current.get()["a"].roots == rig.issuer.roots.get()
    await rig.want(b=wanted("b"))
    assert set(rig.credentials.current.get()) == {"b"}
    await rig.time.advance(2 * DAY)
    assert rig.issuer.requests.count("spiffe://cluster.local/ns/default/sa/a") == 1


async def test_a_certificate_is_renewed_between_half_and_six_tenths_of_its_lifetime(rig: CredentialsRig) -> None:
    await rig.want(a=wanted("a"))
    first = rig.chain("a")
    await rig.time.advance(12 * HOUR - 1)
    assert rig.chain("a") == first
    await rig.time.advance(0.1 * 24 * HOUR + 2)
    assert rig.chain("a") != first
    assert len(rig.issuer.requests) == 2


async def test_renewals_of_proxies_are_spread_and_the_time_of_each_proxy_is_constant(rig: CredentialsRig) -> None:
    nodes = [f"sidecar/default/web-{number}" for number in range(40)]
    await rig.want(**{node: wanted() for node in nodes})
    before = rig.credentials.current.get()
    await rig.time.advance(13.2 * HOUR)
    renewed = sum(rig.credentials.current.get()[node] != before[node] for node in nodes)
    assert 8 < renewed < 32
    assert jitter("a") == jitter("a") != jitter("b")


async def test_a_failed_request_is_retried_and_does_not_affect_other_proxies(rig: CredentialsRig) -> None:
    rig.issuer.fails = lambda item: item.identity.endswith("/bad")
    await rig.want(bad=wanted("bad"), good=wanted("good"))
    assert set(rig.credentials.current.get()) == {"good"}
    assert rig.credentials.faults.get() == {
        "bad": "the signer does not answer; restart it; it has no certificate from this run of headgate: its calls with"
        " mutual TLS fail, at the latest when the certificate from an earlier run expires"
    }
    await rig.time.advance(10 * 60)
    tries = len(rig.issuer.requests) - 1
    assert 10 < tries < 30  # retries with backoff, at least once a minute
    rig.issuer.fails = lambda _: False
    await rig.time.advance(60)
    assert set(rig.credentials.current.get()) == {"bad", "good"}
    assert rig.credentials.faults.get() == {}


async def test_an_expired_certificate_stays_until_there_is_a_new_one(rig: CredentialsRig) -> None:
    """Peers reject an expired certificate; without a certificate a proxy might fall back to plaintext."""
    await rig.want(a=wanted("a"))
    first = rig.chain("a")
    rig.issuer.fails = lambda _: True
    await rig.time.advance(20 * HOUR)
    assert rig.chain("a") == first
    assert "its certificate is valid until 2027-01-16T08:00:00Z" in rig.credentials.faults.get()["a"]
    await rig.time.advance(5 * HOUR)
    assert rig.chain("a") == first
    assert "its certificate expired at 2027-01-16T08:00:00Z, so its calls" in rig.credentials.faults.get()["a"]


async def test_a_certificate_with_old_dns_names_stays_until_it_is_replaced(rig: CredentialsRig) -> None:
    await rig.want(a=wanted("a"))
    first = rig.chain("a")
    rig.issuer.gate.clear()
    await rig.want(a=wanted("a", "foo"))
    assert rig.chain("a") == first
    rig.issuer.gate.set()
    await settle()
    assert rig.chain("a") != first


async def test_a_changed_identity_removes_the_certificate_at_once(rig: CredentialsRig) -> None:
    await rig.want(a=wanted("a"))
    rig.issuer.gate.clear()
    await rig.want(a=wanted("other"))
    assert rig.credentials.current.get() == {}
    rig.issuer.gate.set()
    await settle()
    assert set(rig.credentials.current.get()) == {"a"}


async def test_a_changed_identity_cancels_the_request_in_progress(rig: CredentialsRig) -> None:
    rig.issuer.gate.clear()
    await rig.want(a=wanted("old"))
    await rig.want(a=wanted("new"))
    rig.issuer.gate.set()
    await settle()
    assert rig.issuer.requests == ["spiffe://cluster.local/ns/default/sa/new"]


async def test_a_new_authority_renews_all_certificates_and_new_roots_reach_all_proxies(rig: CredentialsRig) -> None:
    nodes = {f"n{number}": wanted(f"n{number}") for number in range(50)}
    await rig.want(**nodes)
    before = rig.credentials.current.get()
    rig.issuer.roots.set("old and new\n" + rig.issuer.roots.get())
    await settle()
    given = rig.credentials.current.get()
    assert all(given[node].roots.startswith("old and new") for node in nodes)
    assert all(given[node].chain == before[node].chain for node in nodes)
    rig.issuer.replace()
    assert len(rig.credentials.outdated()) == 50
    for _ in range(10):
        await settle()
    assert rig.credentials.outdated() == []
    assert not {item.chain for item in rig.credentials.current.get().values()} & {
        item.chain for item in before.values()
    }


async def test_a_certificate_that_the_old_authority_signs_during_the_change_is_not_used(rig: CredentialsRig) -> None:
    rig.issuer.gate.clear()
    await rig.want(a=wanted("a"))
    rig.issuer.replace()
    rig.issuer.gate.set()
    await settle()
    assert rig.issuer.requests == ["spiffe://cluster.local/ns/default/sa/a"] * 2
    assert rig.credentials.outdated() == []


async def test_the_number_of_concurrent_requests_is_limited(rig: CredentialsRig) -> None:
    rig.issuer.gate.clear()
    await rig.want(**{f"n{number}": wanted() for number in range(100)})
    assert rig.issuer.concurrent == 16
    rig.issuer.gate.set()
    for _ in range(10):
        await settle()
    assert rig.issuer.max_concurrent == 16
    assert len(rig.credentials.current.get()) == 100


async def test_nothing_is_published_or_requested_before_a_renewal_is_due(rig: CredentialsRig) -> None:
    await rig.want(a=wanted("a"))
    shown = []

    async def watch() -> None:
        async for current in rig.credentials.current.changes():
            shown.append(current)  # noqa: PERF401 - the iterator never ends

    watching = asyncio.create_task(watch())
    await rig.time.advance(11 * HOUR)
    watching.cancel()
    assert len(shown) == 1
    assert len(rig.issuer.requests) == 1


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


async def test_requests_succeed_again_after_the_authority_failed_for_days(rig: CredentialsRig) -> None:
    rig.issuer.fails = lambda _: True
    await rig.want(a=wanted("a"))
    await rig.time.advance(2 * DAY)
    rig.issuer.fails = lambda _: False
    await rig.time.advance(60)
    assert set(rig.credentials.current.get()) == {"a"}
