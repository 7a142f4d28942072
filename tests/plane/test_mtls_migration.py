"""A workload changes between plaintext and mutual TLS one step at a time, each held by all before the next (R74, R77)."""

import asyncio

import pytest
from tests.xds.client import Client

from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, Encoded
from headgate.latest import until
from headgate.model.routing import TlsMode, Workload
from headgate.plane import mtls_migration as mtls_migration_module
from headgate.plane.mtls_migration import MtlsMigration
from headgate.xds.fleet import Fleet, Proxy
from headgate.xds.session import Request, Session

IDENTITY = "spiffe://cluster.local/ns/default/sa/web"


def workload(stage: TlsMode, target: TlsMode | None = None) -> Workload:
    return Workload(
        name="default/web", address="10.0.0.1", identity=IDENTITY, tls_mode=stage, target_tls_mode=target or stage
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no connections that are under way, unless a test does."""
    monkeypatch.setattr(mtls_migration_module, "UNDER_WAY_S", 0.0)


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    for name in ("gateway", "sidecar/default/web"):
        connect(fleet.expect(name))
    return fleet


def connect(proxy: Proxy) -> None:
    """Let a proxy hold all that it is to hold: nothing."""
    proxy.config.set({})
    Client(proxy).take()


def lag(proxy: Proxy) -> None:
    """Let a proxy have asked for a cluster that it does not hold."""
    proxy.config.set({CLUSTER: {"a": Encoded(b"", "1")}})


def step(migration: MtlsMigration, target: TlsMode) -> TlsMode:
    """Build once: the stage that it is built with is what proxies are given."""
    stage = migration.next_modes().get("default/web", target)
    migration.record([workload(stage, target)])
    return stage


def test_a_new_workload_begins_where_it_is_wanted(fleet):
    migration = MtlsMigration(fleet)
    assert step(migration, TlsMode.STRICT) is TlsMode.STRICT
    assert not migration.is_due


def test_from_plaintext_to_strict_by_every_stage_in_between(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PLAIN, TlsMode.STRICT)])
    taken = [step(migration, TlsMode.STRICT) for _ in range(4)]
    assert taken == [TlsMode.READY, TlsMode.PERMISSIVE, TlsMode.STRICT, TlsMode.STRICT]
    assert not migration.is_due


def test_and_back(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.STRICT, TlsMode.PLAIN)])
    assert [step(migration, TlsMode.PLAIN) for _ in range(3)] == [TlsMode.PERMISSIVE, TlsMode.READY, TlsMode.PLAIN]


@pytest.mark.parametrize(
    ("before", "last"), [(TlsMode.PERMISSIVE, TlsMode.STRICT), (TlsMode.READY, TlsMode.PLAIN)], ids=["strict", "plain"]
)
async def test_what_is_on_its_way_arrives_before_it_would_be_refused(fleet, monkeypatch, before, last):
    """A proxy acknowledges before its workers follow, and connections of before may wait in the server's queue."""
    first = TlsMode.READY if last is TlsMode.STRICT else TlsMode.PERMISSIVE
    monkeypatch.setattr(mtls_migration_module, "UNDER_WAY_S", 3600.0)
    migration = MtlsMigration(fleet)
    migration.record([workload(first, last)])
    assert [step(migration, last) for _ in range(3)] == [before] * 3
    monkeypatch.setattr(mtls_migration_module, "UNDER_WAY_S", 0.01)
    migration = MtlsMigration(fleet)
    migration.record([workload(first, last)])
    migration.record([workload(before, last)])
    async with asyncio.timeout(5):
        await until(lambda: migration.is_due, fleet.news)
    assert step(migration, last) is last


def test_callers_that_have_always_sent_tls_have_nothing_on_its_way(fleet, monkeypatch):
    monkeypatch.setattr(mtls_migration_module, "UNDER_WAY_S", 3600.0)
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PERMISSIVE)])
    migration.record([workload(TlsMode.PERMISSIVE, TlsMode.STRICT)])
    assert step(migration, TlsMode.STRICT) is TlsMode.STRICT


def test_a_step_that_refuses_nothing_waits_for_no_connection(fleet, monkeypatch):
    monkeypatch.setattr(mtls_migration_module, "UNDER_WAY_S", 3600.0)
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PLAIN, TlsMode.PERMISSIVE)])
    assert [step(migration, TlsMode.PERMISSIVE) for _ in range(2)] == [TlsMode.READY, TlsMode.PERMISSIVE]


def test_what_could_not_be_built_is_no_step(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PLAIN, TlsMode.STRICT)])
    assert migration.next_modes() == migration.next_modes() == {"default/web": TlsMode.READY}


def test_no_step_while_a_proxy_lags(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PERMISSIVE, TlsMode.STRICT)])
    lag(fleet.proxies["gateway"])
    assert migration.pending_proxies() == ("gateway",)
    assert not migration.is_due
    assert step(migration, TlsMode.STRICT) is TlsMode.PERMISSIVE
    fleet.proxies["gateway"].config.set({})
    assert step(migration, TlsMode.STRICT) is TlsMode.STRICT


def test_no_step_while_a_proxy_is_away_because_it_may_still_send_plaintext(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PERMISSIVE, TlsMode.STRICT)])
    fleet.proxies["sidecar/default/web"].session = None
    assert migration.pending_proxies() == ("sidecar/default/web",)
    assert step(migration, TlsMode.STRICT) is TlsMode.PERMISSIVE


def test_a_proxy_that_was_never_here_holds_nothing_up(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PERMISSIVE, TlsMode.STRICT)])
    fleet.expect("sidecar/default/new")
    assert step(migration, TlsMode.STRICT) is TlsMode.STRICT


def test_a_workload_that_comes_back_begins_anew(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PLAIN)])
    migration.record([])
    assert step(migration, TlsMode.STRICT) is TlsMode.STRICT


# --- after a restart


def test_no_step_before_a_proxy_that_comes_back_has_said_all_that_it_has(fleet):
    """It asks for one type after the other; the last one to come back decides when the next step is due."""
    migration, proxy = MtlsMigration(fleet), fleet.proxies["sidecar/default/web"]
    config = {kind: {"a": Encoded(b"", "2")} for kind in (CLUSTER, LISTENER, ENDPOINTS)}
    session = Session()
    session.offer(config)
    proxy.config.set(config)
    proxy.attach(session, lambda _: None)
    brought = {CLUSTER: "2", LISTENER: "2", ENDPOINTS: "1"}
    for kind, digest in brought.items():
        session.receive(Request(kind, subscribe=("a",) if kind == ENDPOINTS else (), initial={"a": digest}))
        assert migration.pending_proxies() == ("sidecar/default/web",)
    while responses := session.advance():
        assert migration.pending_proxies() == ("sidecar/default/web",)
        for response in responses:
            session.receive(Request(response.type_url, nonce=response.nonce))
    assert migration.pending_proxies() == ()


def test_the_next_headgate_goes_on_from_the_stages_that_a_killed_one_left(fleet, tmp_path):
    """R74, R77: with another `--mtls` too; and not before every proxy is back, for all go by what they were told."""
    before = MtlsMigration(fleet, tmp_path / "stages.json")
    before.note([workload(TlsMode.STRICT)])
    fleet = Fleet()
    after = MtlsMigration(fleet, tmp_path / "stages.json")
    assert not after.is_due
    assert step(after, TlsMode.PLAIN) is TlsMode.STRICT
    assert step(after, TlsMode.PLAIN) is TlsMode.STRICT
    assert after.waiting() == ("sidecar/default/web",)
    connect(fleet.expect("sidecar/default/web"))
    assert [step(after, TlsMode.PLAIN) for _ in range(3)] == [TlsMode.PERMISSIVE, TlsMode.READY, TlsMode.PLAIN]


def test_a_headgate_that_ended_all_proxies_leaves_nothing(fleet, tmp_path):
    before = MtlsMigration(fleet, tmp_path / "stages.json")
    before.note([workload(TlsMode.PLAIN)])
    before.forget()
    before.note([workload(TlsMode.STRICT)])
    after = MtlsMigration(Fleet(), tmp_path / "stages.json")
    assert step(after, TlsMode.STRICT) is TlsMode.STRICT


@pytest.mark.parametrize("content", [b"", b'{"default/web": "molten"}', b"[]"])
def test_a_file_that_can_not_be_used_is_told_and_stops_nothing(fleet, tmp_path, caplog, content):
    file = tmp_path / "stages.json"
    file.write_bytes(content)
    migration = MtlsMigration(fleet, file)
    assert str(file) in caplog.text
    assert step(migration, TlsMode.STRICT) is TlsMode.STRICT


def test_a_disk_that_fails_stops_no_step(fleet, tmp_path, caplog):
    migration = MtlsMigration(fleet, tmp_path / "gone" / "stages.json")
    migration.record([workload(TlsMode.PLAIN, TlsMode.STRICT)])
    assert step(migration, TlsMode.STRICT) is TlsMode.READY
    assert "can't be saved" in caplog.text
