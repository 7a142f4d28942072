"""What annotations of Services say about failures of endpoints, and which routes get it (docs/tasks/resilience.md)."""

import re
from pathlib import Path

import pytest
from tests.make.objects import (
    backed_service,
    backend_ref,
    meshed_pod,
    route,
    service_parent,
    split,
)
from tests.make.values import compiled, findings

from headgate.compiler.reasons import Reason
from headgate.model.requests import Timeouts
from headgate.model.resilience import DEFAULT, Ejection, Limits, Resilience, Retry, ServiceTimeouts
from headgate.resources.resilience import EJECTION, LIMITS, RETRY, TIMEOUT


def settings(**annotations: str) -> Resilience:
    """Return the settings of a Service with annotations, which have no mistake."""
    names = {"ejection": EJECTION, "retry": RETRY, "timeout": TIMEOUT, "limits": LIMITS}
    written = {names[name]: text for name, text in annotations.items()}
    result = compiled(*backed_service("web", ("web-1", "10.1.0.1"), annotations=written))
    assert not findings(result, Reason.FIELD_IGNORED)
    (table,) = result.mesh.tables
    return table.resilience


def test_the_page_has_the_defaults() -> None:
    """An annotation with the defaults of the page is as none, but for the budget, which only an annotation begins."""
    page = (Path(__file__).parents[2] / "docs/tasks/resilience.md").read_text()
    pairs: dict[str, list[str]] = {EJECTION: [], RETRY: []}
    for annotation, written in pairs.items():
        table = page.partition(f"| `{annotation}` | Default |")[2].partition("\n\n")[0]
        rows = re.findall(r"\| `([\w-]+)=[^`]+` \| `?([\d.a-z%]+)`? \|", table)
        written += [f"{name}={default}" for name, default in rows]
    assert [len(written) for written in pairs.values()] == [6, 4]
    assert settings(ejection=" ".join(pairs[EJECTION])) == DEFAULT
    assert settings(retry=" ".join(pairs[RETRY])) == Resilience(retry=Retry())


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, DEFAULT),
        ({"ejection": "off"}, Resilience(ejection=None)),
        ({"ejection": "errors=7 time=1s"}, Resilience(ejection=Ejection(errors=7, time=1000))),
        ({"ejection": "time=10m"}, Resilience(ejection=Ejection(time=600_000, max_time=600_000))),
        (
            {"ejection": "gateway-errors=0 local-errors=3 max-time=1m max-percent=90%"},
            Resilience(ejection=Ejection(gateway_errors=0, local_errors=3, max_time=60_000, max_percent=90)),
        ),
        ({"retry": "off"}, Resilience(retry=Retry(conditions=()))),
        ({"retry": "retries=3 on=503"}, Resilience(retry=Retry(retries=3, codes=(503,)))),
        (
            {"retry": "on=unavailable,gateway-error,504,502 backoff=1s budget=50%"},
            Resilience(
                retry=Retry(
                    codes=(502, 504),
                    grpc=("unavailable",),
                    conditions=("gateway-error", "reset"),
                    backoff=1000,
                    max_backoff=10_000,
                    budget=50,
                )
            ),
        ),
        (
            {"timeout": "request=10s attempt=2s connect=500ms idle=1h"},
            Resilience(timeouts=ServiceTimeouts(request=10_000, attempt=2000, connect=500, idle=3_600_000)),
        ),
        (
            {"limits": "connections=1 pending=2 requests=3 retries=4"},
            Resilience(limits=Limits(connections=1, pending=2, requests=3, retries=4)),
        ),
    ],
)
def test_annotations_of_a_service_are_its_settings(annotations, expected):
    assert settings(**annotations) == expected


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        (EJECTION, "on", "'on' must be NAME=VALUE with one of gateway-errors"),
        (EJECTION, "max-percent=100%", "max-percent: '100%' must be a whole number from 1% to 99%"),
        (EJECTION, "time=2m max-time=1m", "max-time must be at least time"),
        (RETRY, "", "is empty: write retries=3 on=503,reset"),
        (RETRY, "retries=11", "retries: '11' must be a whole number from 1 to 10"),
        (RETRY, "on=200", "on: '200' must be a status from 400 to 599, or one of 5xx"),
        (RETRY, "on=503 on=502", "on is written twice"),
        (TIMEOUT, "off", "'off' must be NAME=VALUE with one of request"),
        (TIMEOUT, "request=ten", "request: 'ten' is not a duration: write for example 10s"),
        (TIMEOUT, "idle=0s", "idle: '0s' must be from 1ms to 24h"),
        (
            TIMEOUT,
            "connect=6s",
            "connect: 6000ms is too long for 2 retries, which take at most 10 s; write at most 5000ms",
        ),
        (LIMITS, "requests=-1", "requests: '-1' must be a whole number from 1 to 1000000"),
        (LIMITS, "threads=1", "'threads=1' must be NAME=VALUE with one of connections"),
    ],
)
def test_a_mistake_has_a_finding_and_no_effect(name, text, part):
    result = compiled(*backed_service("web", ("web-1", "10.1.0.1"), annotations={name: text}))
    (finding,) = findings(result, Reason.FIELD_IGNORED)
    assert finding.field == f"metadata.annotations.{name}"
    assert part in finding.message
    assert result.mesh.tables[0].resilience == DEFAULT


def test_clients_of_a_split_get_the_settings_of_the_root():
    result = compiled(
        *backed_service("web", ("web-1", "10.1.0.1"), annotations={TIMEOUT: "request=1s"}),
        *backed_service("v1", ("v1-1", "10.1.0.2"), annotations={TIMEOUT: "request=2s"}),
        *backed_service("v2", ("v2-1", "10.1.0.3")),
        split("web", {"v1": 9, "v2": 1}),
    )
    requests = {table.ref.service: table.routes[0].timeouts.request for table in result.mesh.tables}
    assert requests == {"default/web": 1000, "default/v1": 2000, "default/v2": 0}


RULE = {
    "backendRefs": [backend_ref("web")],
    "retry": {"attempts": 3, "codes": [503, 500], "backoff": "100ms"},
    "timeouts": {"request": "5s"},
}


def test_a_rule_has_the_settings_of_its_backend_and_its_own_take_precedence():
    web = backed_service("web", ("web-1", "10.1.0.1"), annotations={TIMEOUT: "request=1s attempt=2s", RETRY: "on=503"})
    plain = {"backendRefs": [backend_ref("web")], "matches": [{"path": {"value": "/plain"}}]}
    result = compiled(
        *web,
        *backed_service("edge", ("edge-1", "10.1.0.2")),
        route("web", RULE, plain, parents=[service_parent("edge")]),
    )
    table = next(table for table in result.mesh.tables if table.ref.service == "default/edge")
    first, second = sorted(table.routes[:2], key=lambda item: item.name)
    assert first.retry == Retry(retries=3, codes=(500, 503), backoff=100, max_backoff=1000)
    assert first.timeouts == Timeouts(request=5000, backend=2000)
    assert (second.retry, second.timeouts) == (Retry(codes=(503,)), Timeouts(request=1000, backend=2000))
    assert {target.resilience.timeouts.attempt for target in first.split.targets} == {2000}


@pytest.mark.parametrize(
    ("retry", "expected"),
    [({}, Retry()), ({"attempts": 0, "codes": [503]}, Retry(conditions=())), ({"attempts": 99}, Retry(retries=10))],
)
def test_attempts_of_a_rule_are_retries(retry, expected):
    rule = {"backendRefs": [backend_ref("web")], "retry": retry}
    result = compiled(
        *backed_service("web", ("web-1", "10.1.0.1")), route("web", rule, parents=[service_parent("web")])
    )
    (table,) = result.mesh.tables
    assert table.routes[0].retry == expected
    assert not findings(result, Reason.FIELD_IGNORED)


@pytest.mark.parametrize(("other", "idle"), [("2s", 2000), ("10s", 5000)])
def test_the_sidecar_of_a_server_has_the_shortest_idle_time_of_its_services(other, idle):
    selector = {"app": "web"}
    result = compiled(
        *backed_service("web", ("web", "10.1.0.1"), selector=selector, annotations={TIMEOUT: "idle=5s"}),
        *backed_service("also", ("web", "10.1.0.1"), selector=selector, annotations={TIMEOUT: f"idle={other}"}),
        *backed_service("plain", ("web", "10.1.0.1"), selector=selector),
        meshed_pod("web", "10.1.0.1", labels=selector),
    )
    (workload,) = result.mesh.workloads
    assert [port_protocol.idle for port in workload.ports for port_protocol in port.protocols] == [idle]
