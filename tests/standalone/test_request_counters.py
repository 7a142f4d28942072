from typing import Any

from headgate.model.refs import PortRef
from headgate.standalone.request_counters import BackendRequests, BackendTotals

WEB = PortRef("default/web", 8080)
OUTBOUND = "outbound/default/web/8080"


def host(service: str, address: str, requests: int, errors: int = 0) -> dict[str, Any]:
    """Return an endpoint as Envoy writes it: what is zero has no value."""
    stats = {"rq_total": requests, "rq_error": errors, "rq_active": 0}
    return {
        "address": {"socket_address": {"address": address, "port_value": 9000}},
        "locality": {"region": "default", "zone": service},
        "stats": [{"name": name, **({"value": str(value)} if value else {})} for name, value in stats.items()],
    }


def page(*hosts: dict[str, Any], cluster: str = OUTBOUND) -> dict[str, Any]:
    return {"cluster_statuses": [{"name": cluster, "host_statuses": list(hosts)}, {"name": "xds"}]}


def only(*hosts: dict[str, Any], cluster: str = OUTBOUND) -> dict[str, Any]:
    """Return a reading of the gateway, the only proxy."""
    return {"gateway": page(*hosts, cluster=cluster)}


def observed(backend: str, requests: int, failures: int = 0) -> BackendRequests:
    return BackendRequests(ref=WEB, backend=f"default/{backend}", requests=requests, failures=failures)


def test_the_endpoints_of_a_backend_are_added_up() -> None:
    found = BackendTotals().add(
        only(host("v1", "127.0.0.1", 5), host("v1", "127.0.0.2", 6, 1), host("v2", "127.0.0.3", 1))
    )
    assert found == [observed("v1", 11, 1), observed("v2", 1)]


def test_totals_never_shrink_when_endpoints_leave_and_return() -> None:
    totals = BackendTotals()
    totals.add(only(host("v1", "127.0.0.1", 5), host("v2", "127.0.0.2", 7)))
    assert totals.add(only(host("v1", "127.0.0.1", 8))) == [observed("v1", 8), observed("v2", 7)]
    assert totals.add(only(host("v1", "127.0.0.1", 8), host("v2", "127.0.0.2", 2)))[1] == observed("v2", 9)


def test_an_envoy_that_restarted_counts_on() -> None:
    totals = BackendTotals()
    totals.add(only(host("v1", "127.0.0.1", 100, 3)))
    assert totals.add(only(host("v1", "127.0.0.1", 4))) == [observed("v1", 104, 3)]


def test_the_same_endpoint_behind_two_backends_counts_for_each() -> None:
    found = BackendTotals().add(only(host("v1", "127.0.0.1", 5), host("v2", "127.0.0.1", 2)))
    assert found == [observed("v1", 5), observed("v2", 2)]


def test_clusters_of_single_backends_belong_to_their_root() -> None:
    found = BackendTotals().add(only(host("v1", "127.0.0.1", 5), cluster="split/default/web/8080/default/v1"))
    assert found == [observed("v1", 5)]


def test_what_is_not_of_the_mesh_is_left_out() -> None:
    assert BackendTotals().add(only(host("v1", "127.0.0.1", 5), cluster="xds")) == []
    assert BackendTotals().add({}) == []


def test_requests_that_fit_a_splits_groups_are_counted_apart() -> None:
    """R12."""
    totals = BackendTotals()
    totals.add(only(host("v1", "127.0.0.1", 5)))
    matched = page(host("v1", "127.0.0.1", 2), cluster="match/default/web/8080/default/ab/default/v1/8080")
    found = totals.add({"gateway": matched})
    assert [(item.split, item.backend, item.requests) for item in found] == [
        ("", "default/v1", 5),
        ("default/ab", "default/v1", 2),
    ]


def test_copies_of_requests_are_not_counted() -> None:
    """D22."""
    assert BackendTotals().add(only(host("v2", "127.0.0.2", 7), cluster="mirror/default/v2/8080")) == []


def test_requests_that_several_proxies_send_are_added_up_and_outlive_their_proxy() -> None:
    totals = BackendTotals()
    totals.add({"gateway": page(host("v1", "127.0.0.1", 5)), "sidecar/default/a": page(host("v1", "127.0.0.1", 3))})
    assert totals.add({"gateway": page(host("v1", "127.0.0.1", 6))}) == [observed("v1", 9)]
