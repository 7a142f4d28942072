"""Reports over gRPC: the receiver authenticates proxies, rejects malformed reports and restores counts."""

import asyncio
import contextlib
import stat

import grpc
import grpc.aio
import msgspec
import pytest
from msgspec import structs
from tests.telemetry.proxies import ABSENCES, START, ReportingProxy, counter, histogram, message, series_of

from headgate.standalone.state_files import StateFiles
from headgate.telemetry import checkpoint
from headgate.telemetry.checkpoint import NAME, load_checkpoint, write_checkpoints
from headgate.telemetry.counters import packed_counters
from headgate.telemetry.receiver import LATE, LOST, UNKNOWN, UNREADABLE, Receiver
from headgate.telemetry.reports.otlp import METHOD, ProxyReport, SeriesSample, read_report
from headgate.telemetry.windows import Windows
from headgate.xds.authentication import LocalTokens
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer

NODE, OTHER = "sidecar/default/client", "sidecar/default/other"
TOKENS = LocalTokens(bytes(range(32)))
PLACE = {"cluster": "outbound/default/web/8080", "pod": "default/web-0", "backend": "default/web"}


def fresh(began=START):
    return Receiver(Windows(), ABSENCES, clock=lambda: began)


async def connections(receiver):
    return sum(counts.connections for counts in (await receiver.windows.read(30)).flows.values())


@pytest.fixture
def eager(monkeypatch):
    """Write a checkpoint after every change."""
    monkeypatch.setattr(StateFiles, "interval_s", 0)
    monkeypatch.setattr(checkpoint, "PAUSE_FACTOR", 0)


@pytest.fixture
async def receiver(tmp_path):
    """A receiver behind an xDS server."""
    found = fresh()
    xds = XdsServer(Fleet(), TOKENS, unary_methods={METHOD: found.export})
    await xds.start(f"unix:{tmp_path}/xds.sock")
    yield found
    await xds.stop()


@pytest.fixture
async def send(receiver, tmp_path):
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/xds.sock") as channel:

        async def call(data, token):
            metadata = [("authorization", f"Bearer {token}")] if token else []
            return await channel.unary_unary(METHOD)(data, metadata=metadata, timeout=60)

        yield call


async def test_a_proxy_reports_with_its_own_token(receiver, send):
    report = message(histogram("mesh.latency", [90] * 4, **PLACE, code="200-"))
    assert await send(report, TOKENS.issue(NODE)) == b""
    ((flow, counts),) = (await receiver.windows.read(30)).flows.items()
    assert (flow.source.pod, flow.destination.pod, counts.success) == ("default/client", "default/web-0", 4)


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("", id="none"),
        pytest.param("abc", id="malformed"),
        pytest.param(TOKENS.issue(OTHER), id="of another proxy"),
        pytest.param(LocalTokens(bytes(32)).issue(NODE), id="signed with another key"),
    ],
)
async def test_a_proxy_can_not_report_for_another_proxy(receiver, send, token):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await send(message(counter("mesh.connections", 4, **PLACE)), token)
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert (await receiver.windows.read(30)).flows == {}


async def test_a_malformed_report_is_rejected_and_readings_mention_it(receiver, send):
    for data in (b"junk", message(nodes=())):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await send(data, TOKENS.issue(NODE))
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert (await receiver.windows.read(30)).cut == (f"{UNREADABLE}: 2",)


async def test_a_wait_for_a_report_ends_only_with_a_later_report():
    receiver, proxy = fresh(), ReportingProxy()
    waiting = asyncio.create_task(receiver.wait_for_report(NODE, START + 3))
    await asyncio.sleep(0)
    receiver.take(proxy.flush())
    receiver.take(ReportingProxy(OTHER, number=5).flush())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    receiver.take(proxy.flush())
    await waiting


async def test_readings_say_which_counts_are_missing():
    receiver, proxy = fresh(), ReportingProxy()
    receiver.take(ProxyReport(NODE, START, START + 2, [SeriesSample(series_of("server.stats_overflow.counter"), 3)]))
    receiver.take(
        ReportingProxy(OTHER, START - 100, number=60)
        .flush()
        ._replace(samples=[SeriesSample(series_of("mesh.sent"), 9)])
    )
    for _ in range(10):
        proxy.count("a")
        report = proxy.flush()
    receiver.take(report)
    assert set((await receiver.windows.read(30)).cut) == {f"{LATE}: 1", f"{LOST}: 3", f"{UNKNOWN}: 1"}


async def test_impossible_values_of_one_proxy_do_not_affect_other_proxies():
    """The reports of other proxies are still counted, shown and saved."""
    now = 0.0
    receiver = Receiver(Windows(clock=lambda: now), ABSENCES, clock=lambda: START)
    proxy, most = ReportingProxy(OTHER), (1 << 64) - 1
    for number in range(1, 4):
        impossible = {name: series_of(f"mesh.{name}", **PLACE) for name in ("sent", "latency")}
        values = {"sent": number * 10**18, "latency": most}
        samples = [
            SeriesSample(impossible[name], values[name], (1 << 170 * packed_counters.BITS[packed_counters.WIDE]) - 1)
            for name in values
        ]
        receiver.take(ProxyReport(NODE, START + number, START + number, samples))
        proxy.count("a")
        receiver.take(proxy.flush())
        now += 40
        await receiver.windows.read(900)
    assert await connections(receiver) == 0
    assert sum(found.connections for found in (await receiver.windows.read(900)).flows.values()) == 3
    assert (await receiver.checkpoint()).windows.buckets
    data = message(counter("mesh.sent", -5, **PLACE), counter("mesh.connections", 4, **PLACE))
    assert [sample.value for sample in read_report(data).samples] == [4]


@pytest.mark.usefixtures("eager")
async def test_a_killed_headgate_continues_from_its_checkpoint(tmp_path):
    """The checkpoint has the counts of one moment. Later connections are part of the next report and count once."""
    receiver, proxy = fresh(), ReportingProxy()
    state, path = StateFiles(tmp_path), tmp_path / NAME
    receiver.take(proxy.flush())
    async with asyncio.timeout(60), running(write_checkpoints(receiver, state)):
        for number in range(1, 6):
            proxy.count("a", 10)
            receiver.take(proxy.flush())
            while await counted(await load_checkpoint(state)) != number * 10:
                await asyncio.sleep(0)
        lost = await load_checkpoint(state)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    proxy.count("a", 7)
    receiver.take(proxy.flush())
    proxy.count("a", 1)
    again = fresh(START + 100)
    again.restore(lost)
    again.take(proxy.flush())
    assert await connections(again) == 58


@pytest.mark.usefixtures("eager")
async def test_a_reset_is_saved_before_the_series_grows(tmp_path):
    """Otherwise a headgate that is killed soon after would continue from an old value that the series exceeds again."""
    receiver, proxy = fresh(), ReportingProxy()
    state = StateFiles(tmp_path)
    async with asyncio.timeout(60), running(write_checkpoints(receiver, state)):
        proxy.count("a", 10)
        receiver.take(proxy.flush())
        while await counted(await load_checkpoint(state)) != 10:
            await asyncio.sleep(0)
        proxy.reset()
        receiver.take(proxy.flush())
        proxy.count("a", 12)
        report = proxy.flush()
        while await counted(await load_checkpoint(state), report) != 22:
            await asyncio.sleep(0)


async def counted(found, *reports):
    again = fresh()
    if found:
        again.restore(found)
    for report in reports:
        again.take(report)
    return await connections(again)


@contextlib.asynccontextmanager
async def running(work):
    task = asyncio.create_task(work)
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_the_writer_saves_a_checkpoint_when_it_is_canceled(tmp_path):
    receiver, proxy = fresh(), ReportingProxy()
    async with running(write_checkpoints(receiver, StateFiles(tmp_path))):
        await asyncio.sleep(0)
        proxy.count("a", 3)
        receiver.take(proxy.flush())
    assert await counted(await load_checkpoint(StateFiles(tmp_path))) == 3


async def test_an_unreadable_file_is_logged_and_counts_start_at_zero(tmp_path, caplog):
    assert await load_checkpoint(StateFiles(tmp_path)) is None
    assert caplog.text == ""
    for content in (b"", b"junk", b"\x81\xa7version\x01"):
        (tmp_path / NAME).write_bytes(content)
        assert await load_checkpoint(StateFiles(tmp_path)) is None
    assert "the traffic counts start at 0" in caplog.text


@pytest.mark.parametrize("bounds", ["latency_bounds", "size_bounds"])
async def test_counts_with_other_buckets_are_dropped_with_a_message(tmp_path, caplog, bounds) -> None:
    """With another bucket, each later count would be that of the bucket before it."""
    storage, receiver, proxy = StateFiles(tmp_path), fresh(), ReportingProxy()
    proxy.count("a", 3)
    receiver.take(proxy.flush())
    saved = await receiver.checkpoint()
    for stored, known in ((saved, True), (structs.replace(saved, **{bounds: getattr(saved, bounds)[1:]}), False)):
        await storage.save(NAME, msgspec.msgpack.encode(stored))
        assert (await load_checkpoint(storage) is not None) is known
        assert ("other buckets than this release, so the traffic counts start at 0" in caplog.text) is not known


@pytest.mark.usefixtures("eager")
async def test_a_failing_disk_is_logged_once(tmp_path, caplog):
    receiver, proxy = fresh(), ReportingProxy()
    async with running(write_checkpoints(receiver, StateFiles(tmp_path / "missing"))):
        for _ in range(3):
            proxy.count("a")
            receiver.take(proxy.flush())
            async with asyncio.timeout(60):
                while "can't be saved" not in caplog.text:
                    await asyncio.sleep(0)
    assert caplog.text.count("can't be saved") == 1
