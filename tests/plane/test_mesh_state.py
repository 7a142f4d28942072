"""The health and the problems of a mesh, which decide the exit code of `headgate status`."""

from typing import Any

import pytest
from msgspec import structs

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.plane.mesh_state import LATE_S, Observed, mesh_state
from headgate.resources.inspect import ObjectName, Proxy, ProxyCertificate, ProxyProcess, ProxyStatus, Refusal
from headgate.resources.mesh_status import MeshProblem, Revisions
from headgate.resources.meta import Key, timestamp
from headgate.settings import Settings

NOW = 1_800_000_000.0
VALID = ProxyCertificate(
    identity="spiffe://x/ns/a/sa/b",
    issue_time=timestamp(NOW - 30),
    not_before_time=timestamp(NOW - 60),
    not_after_time=timestamp(NOW + 60),
)


def proxy(state: Any = "InSync", **status: Any) -> Proxy:
    found = ProxyStatus(state=state, **{"serves": True, "certificate": VALID, "message": "why"} | status)
    return Proxy(metadata=ObjectName(namespace="a", name="web"), node="sidecar/a/web", status=found)


def state(*proxies: Proxy, reasons: tuple[Reason, ...] = (), **revisions: Any) -> Any:
    about = Key("", "Service", "a", "web")
    findings = [Finding(about=about, reason=reason, field="", message="m") for reason in reasons]
    mesh = Observed(structs.replace(Revisions(stored=1, compiled=1), **revisions), proxies, findings)
    return mesh_state(mesh, started=NOW - 10, now=NOW)


def test_the_state_has_the_settings_of_the_operator() -> None:
    chosen = {"domain": "corp.example", "trust_domain": "mesh.example", "mtls": "strict", "access": "deny"}
    mesh = Observed(Revisions(stored=1, compiled=1), (), [], settings=Settings(**chosen, outbound="refuse"))
    shown = mesh_state(mesh, started=NOW - 10, now=NOW).settings
    assert structs.asdict(shown) == {**chosen, "outbound": "refuse"}


@pytest.mark.parametrize(
    "found",
    [
        proxy(),
        proxy("Lagging", waiting_since_time=timestamp(NOW - LATE_S + 1)),  # a change is in flight
        proxy("Lagging", waiting_since_time=None),
        proxy("Disconnected", serves=False),  # the pod is being created
        proxy(
            process=ProxyProcess(pid=3, restarts=2, failure_message="it ended")
        ),  # Envoy runs again after two restarts
        proxy(certificate=None),
    ],
)
def test_a_proxy_without_a_lasting_fault_is_no_problem(found: Proxy) -> None:
    assert (state(found).healthy, state(found).problems) == (True, ())


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        (
            proxy("Refused", refusals=(Refusal(type="routes", resource="r", message="m"),)),
            "ProxyRefused",
            "sidecar/a/web rejected 1 resource: why",
        ),
        (
            proxy("Lagging", waiting_since_time=timestamp(NOW - LATE_S - 1)),
            "ProxyLagging",
            "sidecar/a/web is lagging: why",
        ),
        (proxy("Disconnected"), "ProxyDisconnected", "sidecar/a/web is disconnected: why"),
        (
            proxy(process=ProxyProcess(failure_message="it ended")),
            "ProxyNotRunning",
            "sidecar/a/web does not run: it ended",
        ),
        (
            proxy(certificate=ProxyCertificate(message="no key")),
            "CertificateUnavailable",
            "sidecar/a/web gets no certificate: no key",
        ),
        (
            proxy(certificate=structs.replace(VALID, not_after_time=timestamp(NOW - 1))),
            "CertificateExpired",
            f"sidecar/a/web has a certificate that expired at {timestamp(NOW - 1)}",
        ),
    ],
)
def test_a_proxy_with_a_lasting_fault_is_a_problem(found: Proxy, reason: str, message: str) -> None:
    about = Key("inspect.headgate.dev", "Proxy", "a", "web")
    assert state(found).problems == (MeshProblem(reason=reason, message=message, object=about),)
    assert not state(found).healthy


def test_errors_make_a_mesh_unhealthy_and_warnings_do_not() -> None:
    found = state(reasons=(Reason.BACKEND_NOT_FOUND, Reason.BACKEND_NOT_FOUND))
    assert (found.healthy, found.findings.warnings) == (True, 2)
    found = state(reasons=(Reason.INVALID, Reason.BACKEND_NOT_FOUND))
    (problem,) = found.problems
    assert (found.findings.errors, problem.reason) == (1, "ErrorsInObjects")
    assert problem.message == "1 error in objects: run `headgate check` to list them"


def test_a_build_that_fails_because_of_a_bug_is_a_problem() -> None:
    found = state(stored=7, failures=2, current=False)
    (problem,) = found.problems
    assert problem.reason == "BuildFailed"
    assert problem.message == "revision 7 can't be built because of a bug in headgate: see its log"
    assert state(failures=2).healthy  # a later build succeeded


def test_the_state_counts_proxies_and_certificates() -> None:
    old = structs.replace(VALID, issue_time=timestamp(NOW - 900), not_after_time=timestamp(NOW + 9))
    found = state(
        proxy(process=ProxyProcess(pid=1, restarts=3)),
        proxy("Lagging", process=ProxyProcess(pid=2, adopted=True)),
        proxy("Refused", certificate=old),
        proxy("Disconnected", certificate=ProxyCertificate(message="no key")),
    )
    counts = found.proxies
    assert (counts.total, counts.in_sync, counts.lagging, counts.refused, counts.disconnected) == (4, 1, 1, 1, 1)
    assert (counts.restarted, counts.adopted) == (1, 1)
    certificates = found.certificates
    assert (certificates.total, certificates.faults) == (3, 1)
    assert (certificates.oldest_issue_time, certificates.first_expiry_time) == (
        timestamp(NOW - 900),
        timestamp(NOW + 9),
    )
