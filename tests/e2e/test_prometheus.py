"""A real Prometheus that scrapes headgate has the clients' own counts."""

from collections import Counter
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import pytest
from tests.e2e.prometheus import BINARY, MISSING, Prometheus, prometheus
from tests.e2e.test_metrics_exact import PLAN, Shop, shop_in
from tests.e2e.world import until

pytestmark = pytest.mark.skipif(not BINARY, reason=MISSING)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    root = tmp_path_factory.mktemp("plans")
    with shop_in(root, "--metrics-address", "127.0.0.1:0", "--metrics-by", "pod") as found:
        yield found


@pytest.fixture(scope="module")
def collector(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    target = urlsplit(shop.world.ready["metrics"]).netloc
    with prometheus(tmp_path_factory.mktemp("prometheus") / "p", target) as found:
        yield found


def told(collector: Prometheus) -> Counter[tuple[str, str, str]]:
    """Return what Prometheus says, in the form of the clients' truth."""
    found: Counter[tuple[str, str, str]] = Counter()
    by = "source_workload, destination_workload, classification"
    for item in collector.ask(f"sum by ({by}) (headgate_requests_total)"):
        tags = item["metric"]
        if count := int(item["value"][1]):
            found[tags["source_workload"], tags["destination_workload"], f"{tags['classification']}_count"] = count
    return found


def test_prometheus_has_the_counts_that_the_clients_have(shop: Shop, collector: Prometheus) -> None:
    shop.send(PLAN)
    until(lambda: told(collector) == shop.truth, f"{shop.truth}")
    latencies = collector.ask("sum(headgate_request_duration_seconds_count)")
    assert int(latencies[0]["value"][1]) == shop.truth.total()


def test_the_control_plane_says_how_it_is(shop: Shop, collector: Prometheus) -> None:
    def healthy() -> Mapping[str, float]:
        names = "headgate_proxies|headgate_certificates|headgate_xds_(acks|nacks|streams)_total|headgate_build_.*_count"
        found = collector.ask(f'{{__name__=~"{names}", state!="behind", state!="absent"}}')
        return {item["metric"]["__name__"]: float(item["value"][1]) for item in found}

    proxies = len(shop.world.sidecars()) + 1
    found = until(lambda: (found := healthy()).get("headgate_proxies") == proxies and found)
    assert found["headgate_certificates"] == proxies
    assert found["headgate_xds_streams_total"] >= proxies
    assert found["headgate_xds_acks_total"] > proxies
    assert found["headgate_xds_nacks_total"] == 0
    assert found["headgate_build_duration_seconds_count"] > 0
