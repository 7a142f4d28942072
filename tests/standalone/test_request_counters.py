"""Request counts from the admin interfaces of proxies."""

from typing import Any

from headgate.model.routing import PortRef
from headgate.standalone.request_counters import AdminPages, BackendRequests, BackendTotals

WEB = PortRef("default/web", 8080)
OUTBOUND = "outbound/default/web/8080"


def host(service: str, address: str, requests: int) -> dict[str, Any]:
    """Return an endpoint as Envoy's /clusters page shows it: a statistic of 0 has no value."""
    stats = {"rq_total": requests, "rq_active": 0}
    return {
        "address": {"socket_address": {"address": address, "port_value": 9000}},
        "locality": {"region": "default", "zone": service},
        "stats": [{"name": name, **({"value": str(value)} if value else {})} for name, value in stats.items()],
    }


def page(*hosts: dict[str, Any], cluster: str = OUTBOUND, series: str = "") -> AdminPages:
    return AdminPages({"cluster_statuses": [{"name": cluster, "host_statuses": list(hosts)}, {"name": "xds"}]}, series)


def only(*hosts: dict[str, Any], cluster: str = OUTBOUND, series: str = "") -> dict[str, AdminPages]:
    """Return the readings of one proxy, the gateway."""
    return {"gateway": page(*hosts, cluster=cluster, series=series)}


def counted(code: str, count: int, *, cluster: str = OUTBOUND, backend: str = "default/v1", grpc: str = "") -> str:
    """Return Envoy's Prometheus lines for `count` requests with the same response code."""
    pod = "default/v1-a:80 " if backend else ""
    labels = f'cluster="{cluster} {backend}",pod="{pod}",code="{code} {grpc}"'
    latency = f"envoy_mesh_latency_sum{{{labels}}} 1234\nenvoy_mesh_latency_count{{{labels}}} {count}\n"
    if code.endswith("-"):
        return f"# TYPE envoy_mesh_latency summary\n{latency}\n"
    return f"{latency}# TYPE envoy_mesh_flagged counter\nenvoy_mesh_flagged{{{labels}}} {count}\n\n"


def observed(backend: str, requests: int, failures: int = 0) -> BackendRequests:
    return BackendRequests(ref=WEB, backend=f"default/{backend}", requests=requests, failures=failures)


def test_the_requests_of_a_backends_endpoints_are_summed() -> None:
    found = BackendTotals().add(
        only(host("v1", "127.0.0.1", 5), host("v1", "127.0.0.2", 6), host("v2", "127.0.0.3", 1))
    )
    assert found == [observed("v1", 11), observed("v2", 1)]


def test_5xx_responses_and_grpc_server_errors_are_failures() -> None:
    series = (
        counted("200-", 5),
        counted("404-", 5),
        counted("500-", 1),
        counted("503UF,URX", 2),
        counted("200-", 4, grpc="0"),
        counted("200-", 8, grpc="14"),
        counted("503UH", 16, backend=""),
    )
    assert BackendTotals().add(only(host("v1", "127.0.0.1", 20), series="".join(series))) == [observed("v1", 20, 11)]


def test_failures_are_counted_across_a_reset_of_their_series() -> None:
    totals = BackendTotals()
    for value, total in ((3, 3), (4, 4), (2, 6)):
        (found,) = totals.add(only(host("v1", "127.0.0.1", 9), series=counted("500-", value)))
        assert found.failures == total


def test_failures_of_requests_that_match_a_split_are_counted_for_that_split() -> None:
    """In these series, the name of the route precedes the name of the cluster."""
    cluster = "match/default/web/8080/default/ab"
    for place in ("", f"{OUTBOUND}/"):
        found = BackendTotals().add(only(series=counted("500-", 3, cluster=f"{place}{cluster}")))
        assert [(item.ref, item.split, item.failures) for item in found] == [(WEB, "default/ab", 3)]


def test_totals_do_not_decrease_when_endpoints_disappear_and_return() -> None:
    totals = BackendTotals()
    totals.add(only(host("v1", "127.0.0.1", 5), host("v2", "127.0.0.2", 7)))
    assert totals.add(only(host("v1", "127.0.0.1", 8))) == [observed("v1", 8), observed("v2", 7)]
    assert totals.add(only(host("v1", "127.0.0.1", 8), host("v2", "127.0.0.2", 2)))[1] == observed("v2", 9)


def test_requests_are_counted_across_a_restart_of_envoy() -> None:
    totals = BackendTotals()
    totals.add(only(host("v1", "127.0.0.1", 100)))
    assert totals.add(only(host("v1", "127.0.0.1", 4))) == [observed("v1", 104)]


def test_requests_to_an_endpoint_of_two_backends_are_counted_for_each_backend() -> None:
    found = BackendTotals().add(only(host("v1", "127.0.0.1", 5), host("v2", "127.0.0.1", 2)))
    assert found == [observed("v1", 5), observed("v2", 2)]


def test_requests_to_the_cluster_of_one_backend_count_for_the_root_service() -> None:
    found = BackendTotals().add(only(host("v1", "127.0.0.1", 5), cluster="split/default/web/8080/default/v1"))
    assert found == [observed("v1", 5)]


def test_clusters_outside_the_mesh_are_not_counted() -> None:
    assert BackendTotals().add(only(host("v1", "127.0.0.1", 5), cluster="xds")) == []
    assert BackendTotals().add({}) == []


def test_requests_that_match_a_split_are_counted_separately() -> None:
    """R12."""
    totals = BackendTotals()
    totals.add(only(host("v1", "127.0.0.1", 5)))
    matched = page(host("v1", "127.0.0.1", 2), cluster="match/default/web/8080/default/ab/default/v1/8080")
    found = totals.add({"gateway": matched})
    assert [(item.split, item.backend, item.requests) for item in found] == [
        ("", "default/v1", 5),
        ("default/ab", "default/v1", 2),
    ]


def test_mirrored_requests_are_not_counted() -> None:
    """D22."""
    assert BackendTotals().add(only(host("v2", "127.0.0.2", 7), cluster="mirror/default/v2/8080")) == []


def test_requests_of_several_proxies_are_summed_and_still_count_after_a_proxy_is_gone() -> None:
    totals = BackendTotals()
    totals.add({"gateway": page(host("v1", "127.0.0.1", 5)), "sidecar/default/a": page(host("v1", "127.0.0.1", 3))})
    assert totals.add({"gateway": page(host("v1", "127.0.0.1", 6))}) == [observed("v1", 9)]
