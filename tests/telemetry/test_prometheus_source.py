"""Readings from a Prometheus equal headgate's own windows, except for the traffic of one scrape interval."""

import asyncio
import math
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headgate.errors import NoCounts, TelemetryError
from headgate.telemetry.counters.counts import (
    CONNECTIONS,
    FAILED,
    RECEIVED,
    SENT,
    SUCCEEDED,
    UNREACHED,
    Counts,
    class_index,
)
from headgate.telemetry.counters.flows import NO_PEER, Flow, Peer
from headgate.telemetry.counters.histogram import bucket_of, gathered, percentiles
from headgate.telemetry.counters.packed_counters import NARROW, by_index
from headgate.telemetry.prometheus.labels import FlowLabels
from headgate.telemetry.prometheus.samples import NEW, NO_PODS
from headgate.telemetry.prometheus.text import traffic
from headgate.telemetry.prometheus.totals import Totals
from headgate.telemetry.prometheus_source import Prometheus
from headgate.telemetry.windows import Windows

OK, BAD = Counts.of({class_index(200): 1}), Counts.of({class_index(503): 1})
NOBODYS = Flow(source=Peer(outside="gateway"), destination=NO_PEER, service="default/web", port=80)
START = 1_000_000.0


def flow(name):
    return Flow(
        source=Peer(pod=f"default/{name}"), destination=Peer(pod="default/web-0"), service="default/web", port=80
    )


class Scraped:
    """A headgate that counts in windows and totals, and a Prometheus that scrapes it when a test calls `scrape`."""

    def __init__(self, by_pod=True):
        self.now = START
        self.series = {}
        self.by_pod = by_pod
        self.windows = Windows(clock=lambda: self.now, wall=lambda: self.now)
        self.source = Prometheus("http://127.0.0.1:9090", fetch=self.ask, clock=lambda: self.now)
        self.start()

    def start(self):
        self.totals = Totals(
            FlowLabels(lambda _: None, by_pod=True), by_pod=self.by_pod, started=self.now, clock=lambda: self.now
        )
        self.windows.count_in(self.totals)

    def scrape(self):
        for family in traffic(self.totals):
            for line in family.lines:
                labels = (("__name__", f"{family.name}{line.suffix}"), ("job", "headgate"), *line.labels, *line.more)
                self.series.setdefault(labels, []).append((self.now, repr(line.value)))

    async def ask(self, query, moment):
        names = re.compile(query.partition('"')[2].rpartition('"')[0])
        since = moment - float(query.rpartition("[")[2].removesuffix("ms]")) / 1000
        result = [
            {"metric": dict(labels), "values": found}
            for labels, samples in self.series.items()
            if names.fullmatch(labels[0][1])
            if (found := [sample for sample in samples if since < sample[0] <= moment])
        ]
        return msgspec.json.encode({"status": "success", "data": {"resultType": "matrix", "result": result}})


@pytest.fixture
def scraped():
    found = Scraped()
    found.scrape()
    return found


def without_latency(reading):
    return {flow: structs.replace(counts, latency=0) for flow, counts in reading.flows.items()}


async def test_a_reading_has_everything_that_was_counted(scraped):
    """R85, R86, D22."""
    outside = Flow(source=Peer(outside="192.0.2.1"), destination=Peer(pod="default/web-0"))
    copy = Flow(source=Peer(outside="gateway"), destination=NO_PEER, service="a/b", port=8, backend="a/b", copy=True)
    split = structs.replace(flow("a"), backend="default/web-v2")
    scraped.windows.add(flow("a"), Counts.of({class_index(status): 2 for status in (200, 404, 503, 0)}))
    scraped.windows.add(split, Counts.of({class_index(200, str(status)): 3 for status in (0, 5, 14)}))
    scraped.windows.add(outside, Counts.of({CONNECTIONS: 2, UNREACHED: 1, SENT: 5, RECEIVED: 6}))
    scraped.windows.add(copy, Counts.of({SUCCEEDED: 4, FAILED: 3}))
    scraped.windows.note("late", 2)
    scraped.now += 1
    scraped.scrape()
    found, expected = await scraped.source.read(30), await scraped.windows.read(30)
    assert without_latency(found) == without_latency(expected)
    assert found.cut == expected.cut == ("late: 2",)
    assert (found.end, found.window) == (scraped.now, 30)


@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abc"), st.booleans()), max_size=60), st.integers(1, 60))
async def test_windows_are_exact_to_one_scrape_interval_when_headgate_restarts(events, seconds):
    scraped = Scraped()
    scraped.scrape()
    happened = []
    for pause, name, is_restarted in events:
        for _ in range(pause):
            scraped.now += 1
            if not scraped.now % 5:
                scraped.scrape()
        if is_restarted:
            scraped.now += 1
            scraped.scrape()
            scraped.now += 1
            scraped.start()
        scraped.windows.add(flow(name), OK)
        happened.append(scraped.now)
    scraped.now += 0.25
    scraped.scrape()
    since = scraped.now - seconds
    found = sum(counts.success for counts in (await scraped.source.read(seconds)).flows.values())
    assert sum(moment > since for moment in happened) <= found <= sum(moment > since - 7 for moment in happened)


async def test_a_reading_has_only_requests_in_its_window(scraped):
    scraped.windows.add(flow("a"), OK)
    for _ in range(10):
        scraped.now += 10
        scraped.scrape()
    assert (await scraped.source.read(30)).flows == {}
    assert {flow.source.pod for flow in (await scraped.source.read(100)).flows} == {"default/a"}


async def test_requests_for_a_window_share_a_query_and_its_reading_for_a_second(scraped):
    asked = []

    async def ask(query, moment):
        asked.append(moment)
        await asyncio.sleep(0)
        if len(asked) == 3:
            raise TelemetryError("it restarts")
        return await scraped.ask(query, moment)

    source = Prometheus("http://127.0.0.1:9090", fetch=ask, clock=lambda: scraped.now)
    first, second = await asyncio.gather(source.read(30), source.read(30))
    scraped.now += 0.5
    assert (await source.read(30)) is first is second
    assert (await source.read(60)).window == 60
    assert len(asked) == 2
    scraped.now += 1
    with pytest.raises(TelemetryError, match="it restarts"):
        await source.read(30)
    assert (await source.read(30)).end == scraped.now
    await source.read(30, scraped.now)
    assert len(asked) == 5


async def test_latencies_are_exact_to_the_exposed_buckets(scraped):
    """R84. The percentiles are those of summed histograms. The exposed bounds are 1, 2, 3 and 5 in each decade."""
    for number in range(1, 1001):
        scraped.windows.add(flow("a"), OK.plus(Counts(gathered({bucket_of(number * 100): 1}))))
    scraped.now += 1
    scraped.scrape()
    (counts,) = (await scraped.source.read(30)).flows.values()
    assert sum(by_index(counts.latency, NARROW).values()) == 1000
    for share in (0.5, 0.9, 0.99):
        (found,) = percentiles(counts.latency, (share,))
        assert abs(math.log(found / (share / 10))) < math.log(1.5)


async def test_requests_before_the_first_scrape_are_left_out_and_the_reading_mentions_them():
    scraped = Scraped()
    scraped.now += 1000
    scraped.windows.add(flow("a"), Counts.of({class_index(200): 100}))
    scraped.scrape()
    reading = await scraped.source.read(30)
    assert (reading.flows, reading.cut) == ({}, (f"{NEW}: 3",))
    scraped.windows.add(flow("a"), BAD)
    scraped.now += 1
    scraped.scrape()
    (counts,) = (await scraped.source.read(30)).flows.values()
    assert (counts.success, counts.failure) == (0, 1)


async def test_a_window_can_end_earlier_and_a_time_without_samples_is_an_error(scraped):
    for _ in range(2):
        scraped.now += 100
        scraped.windows.add(flow("a"), OK)
        scraped.scrape()
    scraped.now += 600
    reading = await scraped.source.read(60, START + 100)
    assert (reading.end, [counts.success for counts in reading.flows.values()]) == (START + 100, [1])
    for end in (START - 1, START + 300):
        with pytest.raises(NoCounts, match="no samples of headgate from the 1m0s before"):
            await scraped.source.read(60, end)


async def test_the_error_about_a_prometheus_without_headgate_says_what_to_do():
    with pytest.raises(TelemetryError, match="add headgate's metrics to its scrape_configs"):
        await Scraped().source.read(30)


async def test_series_without_pod_labels_are_an_error():
    scraped = Scraped(by_pod=False)
    scraped.scrape()
    with pytest.raises(TelemetryError, match="--metrics-by pod"):
        await scraped.source.read(30)


async def test_a_reading_starts_at_the_restart_that_enabled_pod_labels():
    """The error message recommends `--metrics-by pod`. Counts without pods are left out, and a note says so."""
    scraped = Scraped()
    scraped.scrape()
    scraped.now += 5
    scraped.by_pod = False
    scraped.start()
    scraped.scrape()
    scraped.totals.add(NOBODYS, Counts.of({class_index(200): 50}))
    scraped.now += 5
    scraped.scrape()
    with pytest.raises(TelemetryError, match="--metrics-by pod"):
        await scraped.source.read(60)
    scraped.by_pod = True
    scraped.now += 5
    scraped.start()
    scraped.now += 1
    scraped.windows.add(NOBODYS, Counts.of({class_index(200): 2}))
    scraped.windows.add(flow("a"), OK)
    scraped.scrape()
    reading = await scraped.source.read(60)
    assert {flow: (counts.success, counts.failure) for flow, counts in reading.flows.items()} == {
        NOBODYS: (2, 0),
        flow("a"): (1, 0),
    }
    assert reading.cut == (f"{NO_PODS}: 1",)


class Answering(BaseHTTPRequestHandler):
    status, body = 200, b""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(self.status)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "is not a response of the Prometheus API"),
        (400, b'{"status": "error", "error": "parse error"}', "reports an error: parse error"),
        (401, b"", "denies queries from headgate"),
    ],
)
async def test_an_unexpected_answer_is_an_error(status, body, words):
    server = HTTPServer(("127.0.0.1", 0), type("One", (Answering,), {"status": status, "body": body}))
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    try:
        with pytest.raises(TelemetryError, match=words):
            await Prometheus(f"http://127.0.0.1:{server.server_port}").read(30)
    finally:
        thread.join()
        server.server_close()


async def test_the_error_about_an_unreachable_prometheus_contains_its_url():
    server = HTTPServer(("127.0.0.1", 0), Answering)
    url = f"http://127.0.0.1:{server.server_port}"
    server.server_close()
    with pytest.raises(TelemetryError, match=f"the Prometheus {url} can't be reached: .*refused"):
        await Prometheus(url).read(30)
