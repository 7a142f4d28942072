"""A real Prometheus that scrapes headgate has the clients' counts."""

import contextlib
import functools
import json
import socket
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.e2e.identity_rig import workload
from tests.e2e.manifests import endpoints, service_manifest
from tests.e2e.prometheus import BINARY, MISSING, Prometheus, prometheus
from tests.e2e.running_mesh import mesh_in_a_new_directory
from tests.e2e.shop import API, PLAN, ShopMesh, shop_in
from tests.ports import free_port
from tests.waiting import until
from tests.wire import Address

DEPLOY = Path(__file__).parents[2] / "deploy"
SPLIT = json.dumps(
    {
        "apiVersion": "split.smi-spec.io/v1alpha2",
        "kind": "TrafficSplit",
        "metadata": {"name": "books", "annotations": {"headgate.dev/allow-self-reference": "true"}},
        "spec": {"service": "books", "backends": [{"service": "books", "weight": 100}]},
    }
)
pytestmark = pytest.mark.skipif(not BINARY, reason=MISSING)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopMesh]:
    root = tmp_path_factory.mktemp("plans")
    with shop_in(root, "--metrics-address", "127.0.0.1:0", "--metrics-by", "pod") as found:
        yield found


@pytest.fixture(scope="module")
def collector(shop: ShopMesh, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    target = urlsplit(shop.mesh.ready["metrics"]).netloc
    with prometheus(
        tmp_path_factory.mktemp("prometheus") / "p", target, rules=DEPLOY / "prometheus" / "headgate.rules.yml"
    ) as found:
        yield found


def counts(collector: Prometheus) -> Counter[tuple[str, str, str]]:
    """Return the request counts in Prometheus by client, server and outcome, as in `ShopMesh.truth`."""
    found: Counter[tuple[str, str, str]] = Counter()
    by = "source_workload, destination_workload, classification"
    for item in collector.ask(f"sum by ({by}) (headgate_requests_total)"):
        tags = item["metric"]
        if count := int(item["value"][1]):
            found[tags["source_workload"], tags["destination_workload"], f"{tags['classification']}_count"] = count
    return found


def send(shop: ShopMesh, collector: Prometheus) -> None:
    """Send requests and wait until the counts in Prometheus have grown by exactly these requests."""
    before, expected = counts(collector), shop.truth.copy()
    shop.send(PLAN)
    until(lambda: counts(collector) - before == shop.truth - expected, f"{shop.truth - expected}")


def test_prometheus_has_the_same_counts_as_the_clients(shop: ShopMesh, collector: Prometheus) -> None:
    """R97: every counted request has a latency."""
    send(shop, collector)
    total = "sum(headgate_request_duration_seconds_count) - sum(headgate_requests_total)"
    assert collector.ask(total)[0]["value"][1] == "0"


def test_prometheus_has_the_metrics_of_the_control_plane(shop: ShopMesh, collector: Prometheus) -> None:
    def healthy() -> Mapping[str, float]:
        names = "headgate_proxies|headgate_certificates|headgate_xds_(acks|nacks|streams)_total|headgate_build_.*_count"
        series = collector.ask(f'{{__name__=~"{names}", state=~"|InSync"}}')
        return {sample["metric"]["__name__"]: float(sample["value"][1]) for sample in series}

    proxies = len(shop.mesh.sidecars()) + 1
    found = until(lambda: (found := healthy()).get("headgate_proxies") == proxies and found)
    assert found["headgate_certificates"] == proxies
    assert found["headgate_xds_streams_total"] >= proxies
    assert found["headgate_xds_acks_total"] > proxies
    assert found["headgate_xds_nacks_total"] == 0
    assert found["headgate_build_duration_seconds_count"] > 0


def connect(address: Address) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(address, timeout=60):
        return True
    return False


def closed(name: str) -> str:
    """Return a TrafficTarget that allows no existing ServiceAccount to call the pods of an account."""
    route = {"apiVersion": "specs.smi-spec.io/v1alpha4", "kind": "TCPRoute", "metadata": {"name": name}, "spec": {}}
    spec = {
        "destination": {"kind": "ServiceAccount", "name": name},
        "sources": [{"kind": "ServiceAccount", "name": "auditor"}],
        "rules": [{"kind": "TCPRoute", "name": name}],
    }
    target = {"apiVersion": "access.smi-spec.io/v1alpha3", "kind": "TrafficTarget", "metadata": {"name": name}}
    return f"{json.dumps(route)}\n---\n{json.dumps(target | {'spec': spec})}"


def test_every_query_of_the_rules_and_the_dashboard_returns_data(
    shop: ShopMesh, collector: Prometheus, tmp_path: Path
) -> None:
    """The test creates the traffic that each query selects."""
    ports = {"tcp": 5432}
    present = endpoints("present", {"tcp": [shop.mesh.backend("present")]})
    shop.mesh.apply(SPLIT, service_manifest("present", ports), present, service_manifest("absent", ports))
    shop.mesh.apply(closed("vault"), workload("vault", tmp_path))
    shop.mesh.kubectl("rollout", "status", "deployment/vault")
    for _ in range(2):  # a rate needs two scrapes
        for name in ("present", "absent"):
            until(functools.partial(connect, shop.mesh.address(name, 5432)), name)
        send(shop, collector)
    dashboard = json.loads((DEPLOY / "grafana" / "headgate.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    for variable in ("namespace", "workload", "job"):
        queries = [query.replace(f"${variable}", ".*") for query in queries]
    assert len(queries) > 30
    assert not [query for query in queries if "$" in query]
    for query in queries:
        until(lambda query=query: connect(shop.mesh.address("vault", 9000)) and collector.ask(query), query)

    def shares() -> set[tuple[str, float]]:
        shown = collector.ask("backend:headgate_observed:ratio_rate1m")
        return {(row["metric"]["destination_service_name"], float(row["value"][1])) for row in shown}

    until(lambda: shares() == {("books", 1.0), ("bank", 1.0), ("mail", 1.0)}, "the shares of the backends")
    until(
        lambda: collector.ask("mesh:headgate_mutual_tls:ratio_rate1m")[0]["value"][1] == "1", "the share of mutual TLS"
    )
    groups = collector.get("/api/v1/rules")["data"]["groups"]
    assert not [rule for group in groups for rule in group["rules"] if rule.get("lastError")]
    assert not [alert for alert in collector.get("/api/v1/alerts")["data"]["alerts"] if alert["state"] == "firing"]


def test_the_metrics_api_reads_its_counts_from_prometheus(shop: ShopMesh, collector: Prometheus) -> None:
    """R80: the counts include those of an earlier headgate."""
    send(shop, collector)
    shop.mesh.stop()
    shop.mesh.options = (*shop.mesh.options, "--metrics-source", f"prometheus={collector.url}")
    shop.mesh.start()
    shop.send(PLAN)
    shop.wait_for_agreement()


def test_the_metrics_api_fails_when_prometheus_is_unreachable(tmp_path: Path) -> None:
    """The API answers with an error, not with zero counts."""
    url = f"http://127.0.0.1:{free_port()}"
    with mesh_in_a_new_directory("--metrics-source", f"prometheus={url}", manifests={"web.yaml": SPLIT}) as mesh:
        refused = mesh.try_kubectl("get", "--raw", f"{API}/namespaces/default")
        assert refused.returncode
        assert f"the Prometheus {url} can't be reached" in refused.stderr


def test_the_metrics_page_is_valid_and_contains_no_secrets(shop: ShopMesh) -> None:
    """Requests with a foreign Host are rejected: a web page could use DNS rebinding to read the metrics."""
    address = urlsplit(shop.mesh.ready["metrics"])
    assert (address.hostname, address.path) == ("127.0.0.1", "/metrics")
    with urllib.request.urlopen(address.geturl(), timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        page = answer.read()
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
    for secret in ("token", "token-secret"):
        assert (shop.mesh.state / secret).read_bytes().strip() not in page
    assert b"PRIVATE KEY" not in page
    foreign = urllib.request.Request(address.geturl(), headers={"host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(foreign, timeout=60)
    assert refused.value.code == 400
    refused.value.close()


def test_up_rejects_a_metrics_address_that_is_not_loopback(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="is not a loopback address"),
        mesh_in_a_new_directory("--metrics-address", "0.0.0.0:0"),
    ):
        pass
