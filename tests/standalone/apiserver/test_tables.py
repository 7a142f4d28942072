"""The cells of `kubectl get` tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headgate.resources.cells import duration
from headgate.resources.registry import KINDS, find_written


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (660, "11m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600, "9h"),
        (49 * 3600, "2d1h"),
        (10 * 86400, "10d"),
    ],
)
def test_the_age_of_an_object_is_formatted_as_kubectl_does(seconds: int, text: str) -> None:
    assert duration((datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()) == text


def test_an_absent_time_has_an_unknown_age() -> None:
    assert duration("") == "<unknown>"


def cells(obj: dict[str, Any]) -> dict[str, Any]:
    kind = find_written(obj["apiVersion"], obj["kind"]) if "apiVersion" in obj else None
    kind = kind or next(known for known in KINDS if known.kind == obj["kind"])
    return {column.name: column.shown(obj) for column in kind.columns}


def test_the_cells_of_a_service_show_ports_and_addresses() -> None:
    ports = [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
    service = {"kind": "Service", "metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": ports}}
    assert cells(service)["Port(s)"] == "80:30080/TCP,53/UDP"
    assert cells(service)["External-IP"] == "<pending>"


def test_the_status_cell_of_a_pod_shows_phase_or_reason() -> None:
    pod: dict[str, Any] = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{}, {}]}}
    assert (cells(pod)["Ready"], cells(pod)["Status"]) == ("0/2", "Pending")
    waiting = {"ready": False, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    pod["status"] = {"phase": "Running", "podIP": "127.1.2.3", "containerStatuses": [{"ready": True}, waiting]}
    assert cells(pod) | {"Age": ""} == {
        "Name": "p",
        "Ready": "1/2",
        "Status": "CrashLoopBackOff",
        "Restarts": 3,
        "Age": "",
        "IP": "127.1.2.3",
        "Node": "<none>",
    }
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert cells(pod)["Status"] == "Terminating"


def test_the_cells_of_a_split_show_its_conditions() -> None:
    conditions = [{"type": "Accepted", "status": "True"}, {"type": "Programmed", "status": "False"}]
    status = {"conditions": conditions, "proxies": {"programmed": 1, "total": 3}}
    split = {"kind": "TrafficSplit", "metadata": {"name": "t"}, "spec": {"service": "s"}, "status": status}
    shown = cells(split)
    assert (shown["Accepted"], shown["Programmed"], shown["Acknowledged"], shown["Proxies"], shown["Backends"]) == (
        "True",
        "False",
        1,
        3,
        "<none>",
    )


def test_the_cells_of_routes_and_gateways_show_their_status() -> None:
    good = {
        "conditions": [{"type": "Accepted", "status": "True"}, {"type": "headgate.dev/Programmed", "status": "True"}]
    }
    bad = {
        "conditions": [{"type": "Accepted", "status": "True"}, {"type": "headgate.dev/Programmed", "status": "False"}]
    }
    spec = {"parentRefs": [{"name": "edge"}, {"name": "web"}], "hostnames": ["a.example.com", "*.example.com"]}
    route = {"kind": "HTTPRoute", "metadata": {"name": "r"}, "spec": spec, "status": {"parents": [good, bad]}}
    shown = cells(route)
    assert (shown["Hostnames"], shown["Parents"]) == ("a.example.com,*.example.com", "edge,web")
    assert (shown["Accepted"], shown["Programmed"]) == ("True", "False")
    assert cells({**route, "status": {}})["Accepted"] == "Unknown"
    programmed = [{"type": "Programmed", "status": "True"}]
    gateway = {"kind": "Gateway", "metadata": {"name": "g"}, "spec": {"gatewayClassName": "headgate"}}
    assert (cells(gateway)["Class"], cells(gateway)["Address"]) == ("headgate", "<none>")
    given = {"addresses": [{"type": "IPAddress", "value": "127.77.0.1"}], "conditions": programmed}
    assert cells({**gateway, "status": given})["Address"] == "127.77.0.1"
    assert cells({**gateway, "status": given})["Programmed"] == "True"
