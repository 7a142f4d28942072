"""The metric templates for Flagger in the documentation, asked at a real Prometheus (docs/tasks/progressive-delivery.md)."""

import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from tests.e2e.manifests import external, split_manifest
from tests.e2e.prometheus import BINARY, MISSING, Prometheus, prometheus
from tests.e2e.running_mesh import mesh_in_a_new_directory
from tests.waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "tasks" / "progressive-delivery.md"
pytestmark = pytest.mark.skipif(not BINARY, reason=MISSING)


def templates() -> Mapping[str, str]:
    """Return the queries of the page by name, as Flagger completes them for a Deployment `podinfo`."""
    blocks = [part.split("```")[0] for part in PAGE.read_text().split("```yaml\n")[1:]]
    found = [obj for block in blocks if "kind: MetricTemplate" in block for obj in yaml.safe_load_all(block)]
    values = {"namespace": "default", "target": "podinfo", "interval": "1m"}
    queries = {obj["metadata"]["name"]: obj["spec"]["query"] for obj in found}
    for name, value in values.items():
        queries = {key: query.replace(f"{{{{ {name} }}}}", value) for key, query in queries.items()}
    return queries


def value(collector: Prometheus, query: str) -> float:
    item = collector.ask(query)[0]
    return float(item["value"][1])


def test_the_queries_give_the_canarys_success_rate_and_latency(tmp_path: Path) -> None:
    queries = templates()
    assert sorted(queries) == ["latency-p99", "success-rate"]
    with mesh_in_a_new_directory("--metrics-address", "127.0.0.1:0") as mesh:
        primary, canary = mesh.backend("primary"), mesh.backend("canary")
        weights = {"podinfo-primary": 1, "podinfo-canary": 1}
        services = (
            external("podinfo-primary", primary),
            external("podinfo-canary", canary),
            external("podinfo", primary),
        )
        mesh.apply(*services, split_manifest("podinfo", "podinfo", weights))
        mesh.conditions("podinfo", Programmed="True")
        with prometheus(tmp_path / "prometheus", urlsplit(mesh.ready["metrics"]).netloc) as collector:
            assert not collector.ask(queries["success-rate"]), "without requests there is no success rate"
            request = mesh.request("podinfo", 8080)
            mesh.send(2, request)
            series = 'headgate_requests_total{backend_name="podinfo-canary", classification="failure"}'
            until(lambda: collector.ask(series))  # with the value 0: rate() does not see the first value of a series
            canary.status = "500 Internal Server Error"
            began = time.monotonic()
            mesh.send(200, request)
            canary.status = "200 OK"
            mesh.send(600, request)
            took = time.monotonic() - began
            # 300 of the canary's 400 requests succeed. Prometheus extrapolates each series by at most a scrape at each end.
            until(lambda: value(collector, queries["success-rate"]) == pytest.approx(75, rel=0.1))
            assert 0 < value(collector, queries["latency-p99"]) < took * 1000  # milliseconds
