"""An mTLS migration takes one step at a time, after every proxy has acknowledged the step before (R74, R77)."""

import asyncio
import json

import pytest
from tests.xds.client import XdsClient

from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, Encoded
from headgate.latest import until
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import Workload
from headgate.plane import mtls_migration as mtls_migration_module
from headgate.plane.mtls_migration import MtlsMigration
from headgate.standalone.state_files import StateFiles
from headgate.xds.fleet import Fleet, FleetProxy
from headgate.xds.messages import DeltaRequest
from headgate.xds.session import Session

IDENTITY = "spiffe://cluster.local/ns/default/sa/web"


def workload(mode: TlsMode, target: TlsMode | None = None, *, name: str = "default/web") -> Workload:
    return Workload(name=name, address="10.0.0.1", identity=IDENTITY, tls_mode=mode, target_tls_mode=target or mode)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the wait for connections in flight to zero; a test may set another time."""
    monkeypatch.setattr(mtls_migration_module, "HANDSHAKE_GRACE_S", 0.0)


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    for name in ("gateway", "sidecar/default/web"):
        connect(fleet.expect(name))
    return fleet


def connect(proxy: FleetProxy) -> None:
    """Connect a proxy that has acknowledged an empty configuration."""
    proxy.config.set({})
    XdsClient(proxy).take()


def lag(proxy: FleetProxy) -> None:
    """Give a proxy a cluster that it has not acknowledged."""
    proxy.config.set({CLUSTER: {"a": Encoded(b"", "1")}})


def step(migration: MtlsMigration, target: TlsMode) -> TlsMode:
    """Build once, and return the mode of the build."""
    mode = migration.next_modes().get("default/web", target)
    migration.record([workload(mode, target)])
    return mode


def test_a_new_workload_starts_in_its_wanted_mode(fleet):
    migration = MtlsMigration(fleet)
    assert step(migration, TlsMode.STRICT) is TlsMode.STRICT
    assert not migration.is_due


def test_a_migration_to_strict_passes_through_every_mode(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PLAIN, TlsMode.STRICT)])
    taken = [step(migration, TlsMode.STRICT) for _ in range(4)]
    assert taken == [TlsMode.READY, TlsMode.PERMISSIVE, TlsMode.STRICT, TlsMode.STRICT]
    assert not migration.is_due


def test_a_migration_to_plaintext_passes_through_every_mode(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.STRICT, TlsMode.PLAIN)])
    assert [step(migration, TlsMode.PLAIN) for _ in range(3)] == [TlsMode.PERMISSIVE, TlsMode.READY, TlsMode.PLAIN]


@pytest.mark.parametrize(
    ("before", "last"), [(TlsMode.PERMISSIVE, TlsMode.STRICT), (TlsMode.READY, TlsMode.PLAIN)], ids=["strict", "plain"]
)
async def test_a_step_waits_for_pending_connections_that_it_would_refuse(fleet, monkeypatch, before, last):
    """A proxy acknowledges before its workers switch, and old connections may wait in the server's accept queue."""
    first = TlsMode.READY if last is TlsMode.STRICT else TlsMode.PERMISSIVE
    monkeypatch.setattr(mtls_migration_module, "HANDSHAKE_GRACE_S", 3600.0)
    migration = MtlsMigration(fleet)
    migration.record([workload(first, last)])
    assert [step(migration, last) for _ in range(3)] == [before] * 3
    monkeypatch.setattr(mtls_migration_module, "HANDSHAKE_GRACE_S", 0.01)
    migration = MtlsMigration(fleet)
    migration.record([workload(first, last)])
    migration.record([workload(before, last)])
    async with asyncio.timeout(60):
        await until(lambda: migration.is_due, fleet.change_count)
    assert step(migration, last) is last


def test_a_step_to_strict_does_not_wait_if_clients_have_always_used_tls(fleet, monkeypatch):
    monkeypatch.setattr(mtls_migration_module, "HANDSHAKE_GRACE_S", 3600.0)
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PERMISSIVE)])
    migration.record([workload(TlsMode.PERMISSIVE, TlsMode.STRICT)])
    assert step(migration, TlsMode.STRICT) is TlsMode.STRICT


def test_a_step_that_refuses_no_connection_does_not_wait(fleet, monkeypatch):
    monkeypatch.setattr(mtls_migration_module, "HANDSHAKE_GRACE_S", 3600.0)
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PLAIN, TlsMode.PERMISSIVE)])
    assert [step(migration, TlsMode.PERMISSIVE) for _ in range(2)] == [TlsMode.READY, TlsMode.PERMISSIVE]


def test_a_step_is_repeated_until_a_build_records_it(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PLAIN, TlsMode.STRICT)])
    assert migration.next_modes() == migration.next_modes() == {"default/web": TlsMode.READY}


def test_a_lagging_proxy_blocks_the_next_step(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PERMISSIVE, TlsMode.STRICT)])
    lag(fleet.proxies["gateway"])
    assert migration.pending_proxies() == ("gateway",)
    assert not migration.is_due
    assert step(migration, TlsMode.STRICT) is TlsMode.PERMISSIVE
    fleet.proxies["gateway"].config.set({})
    assert step(migration, TlsMode.STRICT) is TlsMode.STRICT


def test_a_disconnected_proxy_blocks_the_next_step_because_it_may_send_plaintext(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PERMISSIVE, TlsMode.STRICT)])
    fleet.proxies["sidecar/default/web"].session = None
    assert migration.pending_proxies() == ("sidecar/default/web",)
    assert step(migration, TlsMode.STRICT) is TlsMode.PERMISSIVE


def test_a_proxy_that_never_connected_does_not_block_a_step(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PERMISSIVE, TlsMode.STRICT)])
    fleet.expect("sidecar/default/new")
    assert step(migration, TlsMode.STRICT) is TlsMode.STRICT


def test_a_workload_that_returns_to_the_mesh_starts_in_its_wanted_mode(fleet):
    migration = MtlsMigration(fleet)
    migration.record([workload(TlsMode.PLAIN)])
    migration.record([])
    assert step(migration, TlsMode.STRICT) is TlsMode.STRICT


# --- after a restart of headgate


def test_a_reconnecting_proxy_blocks_the_next_step_until_it_has_subscribed_to_all_types(fleet):
    """The proxy subscribes to one resource type after another; the step is due after the last subscription."""
    migration, proxy = MtlsMigration(fleet), fleet.proxies["sidecar/default/web"]
    config = {kind: {"a": Encoded(b"", "2")} for kind in (CLUSTER, LISTENER, ENDPOINTS)}
    session = Session()
    session.set_config(config)
    proxy.config.set(config)
    proxy.attach(session, lambda _: None)
    held_versions = {CLUSTER: "2", LISTENER: "2", ENDPOINTS: "1"}
    for kind, digest in held_versions.items():
        session.receive(DeltaRequest(kind, subscribe=("a",) if kind == ENDPOINTS else (), initial={"a": digest}))
        assert migration.pending_proxies() == ("sidecar/default/web",)
    while responses := session.next_responses():
        assert migration.pending_proxies() == ("sidecar/default/web",)
        for response in responses:
            session.receive(DeltaRequest(response.type_url, nonce=response.nonce))
    assert migration.pending_proxies() == ()


async def restored(fleet: Fleet, state: StateFiles, wanted: TlsMode) -> tuple[MtlsMigration, TlsMode]:
    """Build once, restore the saved modes and build again; return the migration and the mode of the second build."""
    migration = MtlsMigration(fleet)
    step(migration, wanted)
    fleet.assume_configured()
    restore = asyncio.create_task(migration.restore(state))
    due = asyncio.create_task(until(lambda: migration.is_due, fleet.change_count))
    await asyncio.wait({restore, due}, return_when=asyncio.FIRST_COMPLETED)
    due.cancel()
    mode = step(migration, wanted)
    await restore
    return migration, mode


async def save(state: StateFiles, *workloads: Workload) -> MtlsMigration:
    """Save the modes of workloads as an earlier process does."""
    migration = MtlsMigration(Fleet())
    await migration.restore(state)
    migration.record(workloads)
    await migration.save()
    return migration


async def test_a_restarted_headgate_continues_from_the_saved_modes(tmp_path):
    """R74, R77. The saved modes apply until every proxy has reconnected, even with another `--mtls`."""
    await save(StateFiles(tmp_path), workload(TlsMode.STRICT))
    fleet = Fleet()
    fleet.expect("sidecar/default/web")
    after, mode = await restored(fleet, StateFiles(tmp_path), TlsMode.PLAIN)
    assert mode is TlsMode.STRICT
    assert step(after, TlsMode.PLAIN) is TlsMode.STRICT
    assert after.pending_proxies() == ("sidecar/default/web",)
    connect(fleet.expect("sidecar/default/web"))
    assert [step(after, TlsMode.PLAIN) for _ in range(3)] == [TlsMode.PERMISSIVE, TlsMode.READY, TlsMode.PLAIN]


async def test_a_build_that_began_before_the_restore_does_not_replace_the_saved_modes(tmp_path):
    """The build of the wanted modes ends after the saved modes are read. The next build uses the saved modes."""
    await save(StateFiles(tmp_path), workload(TlsMode.STRICT))
    fleet = Fleet()
    fleet.expect("sidecar/default/web").was_configured = True
    migration = MtlsMigration(fleet)
    step(migration, TlsMode.PLAIN)
    migration.next_modes()
    restore = asyncio.create_task(migration.restore(StateFiles(tmp_path)))
    await until(lambda: migration.is_due, fleet.change_count)
    migration.record([workload(TlsMode.PLAIN)])
    assert not restore.done()
    assert step(migration, TlsMode.PLAIN) is TlsMode.STRICT
    await restore


async def test_the_most_frequent_mode_of_a_namespace_is_saved_once(tmp_path):
    """A new pod in the most frequent mode of its namespace does not change the saved modes."""
    modes = {"a/1": TlsMode.STRICT, "a/2": TlsMode.STRICT, "a/3": TlsMode.PLAIN, "b/1": TlsMode.PLAIN}
    await save(StateFiles(tmp_path), *(workload(mode, name=name) for name, mode in modes.items()))
    saved = {"a": "strict", "b": "plain", "a/3": "plain"}
    assert json.loads((tmp_path / "tls-modes.json").read_bytes()) == saved


async def test_a_headgate_that_stopped_all_proxies_forgets_the_saved_modes(tmp_path):
    before = await save(StateFiles(tmp_path), workload(TlsMode.PLAIN))
    await before.forget()
    before.record([workload(TlsMode.STRICT)])
    await before.save()
    assert json.loads((tmp_path / "tls-modes.json").read_bytes()) == {}


@pytest.mark.parametrize("content", [b"", b'{"default/web": "molten"}', b"[]"])
async def test_an_unreadable_file_is_logged_and_blocks_no_step(tmp_path, caplog, content):
    (tmp_path / "tls-modes.json").write_bytes(content)
    _, mode = await restored(Fleet(), StateFiles(tmp_path), TlsMode.STRICT)
    assert "tls-modes.json can't be read" in caplog.text
    assert mode is TlsMode.STRICT


async def test_a_failing_disk_is_logged_and_blocks_no_step(tmp_path, caplog):
    migration = await save(StateFiles(tmp_path / "gone"), workload(TlsMode.PLAIN, TlsMode.STRICT))
    assert step(migration, TlsMode.STRICT) is TlsMode.READY
    assert "can't be saved" in caplog.text
