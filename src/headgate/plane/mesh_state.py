"""Sums up the state of a mesh for `headgate status`, which exits with 1 if there are problems."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import headgate
from headgate.compiler.report import Finding
from headgate.formatting import pluralize
from headgate.resources.inspect import GROUP, Proxy, Severity
from headgate.resources.mesh_status import (
    MOST_FAILING,
    CertificateCounts,
    FailingTraffic,
    FindingCounts,
    MeshProblem,
    MeshState,
    PodCounts,
    ProxyCounts,
    Revisions,
    SettingsInForce,
    StoreState,
    WorkloadCounts,
)
from headgate.resources.meta import Key, epoch_seconds, timestamp
from headgate.settings import DEFAULTS, Settings

ERRORS_IN_OBJECTS = "ErrorsInObjects"
LATE_S = 5.0  # seconds without an answer after which a lagging proxy is reported as a problem


class HostState(NamedTuple):
    """The state of the control plane's environment.

    `pods` is None if a Kubernetes cluster runs the pods, `store` if its API server has the objects, and `workloads` if the
    pods can't be read. `missing_kinds` has the kinds that the API server does not serve, as `PLURAL.GROUP`. `problems` has further problems.
    `localhost_port` is where this machine serves names below `.localhost`; 0 on a cluster.
    """

    pods: PodCounts | None = None
    workloads: WorkloadCounts | None = None
    store: StoreState | None = None
    missing_kinds: tuple[str, ...] = ()
    problems: tuple[MeshProblem, ...] = ()
    localhost_port: int = 0


class Observed(NamedTuple):
    """The state of a mesh at one moment."""

    revisions: Revisions
    proxies: Sequence[Proxy]
    findings: Sequence[Finding]
    host: HostState = HostState()
    settings: Settings = DEFAULTS
    failing: tuple[FailingTraffic, ...] | None = None


def mesh_state(mesh: Observed, *, started: float, now: float) -> MeshState:
    """Return the summary of a mesh, with its problems. Times are seconds since the epoch."""
    problems = tuple(_problems(mesh, now))
    return MeshState(
        healthy=not problems,
        problems=problems,
        start_time=timestamp(started),
        version=headgate.__version__,
        revisions=mesh.revisions,
        proxies=_proxies(mesh.proxies),
        certificates=_certificates(mesh.proxies),
        findings=_findings(mesh.findings),
        pods=mesh.host.pods,
        workloads=mesh.host.workloads,
        store=mesh.host.store,
        missing_kinds=mesh.host.missing_kinds,
        localhost_port=mesh.host.localhost_port,
        failing=mesh.failing and mesh.failing[:MOST_FAILING],
        failing_left_out=len((mesh.failing or ())[MOST_FAILING:]),
        settings=SettingsInForce(
            domain=mesh.settings.domain,
            trust_domain=mesh.settings.trust_domain,
            mtls=mesh.settings.mtls,
            access=mesh.settings.access,
            outbound=mesh.settings.outbound,
        ),
    )


def _problems(mesh: Observed, now: float) -> Iterator[MeshProblem]:
    yield from mesh.host.problems
    if store := mesh.host.store:
        yield from (MeshProblem(reason="StoreNotWritable", message=text) for text in store.write_problems())
        yield from (MeshProblem(reason="ObjectDamaged", message=text) for text in store.damages())
    for workload in mesh.host.workloads.unready if mesh.host.workloads else ():
        yield MeshProblem(
            reason="WorkloadNotReady", message=f"{workload.object}: {workload.text()}", object=workload.object
        )
    for proxy in mesh.proxies:
        about = Key(GROUP, "Proxy", proxy.metadata.namespace, proxy.metadata.name)
        yield from (
            MeshProblem(reason=reason, message=f"{proxy.node} {text}", object=about)
            for reason, text in _proxy_problems(proxy, now)
        )
    if errors := _findings(mesh.findings).errors:
        message = f"{pluralize(errors, 'error')} in objects: run `headgate check` to list them"
        yield MeshProblem(reason=ERRORS_IN_OBJECTS, message=message)
    if mesh.revisions.failures and not mesh.revisions.current:
        message = f"revision {mesh.revisions.stored} can't be built because of a bug in headgate: see its log"
        yield MeshProblem(reason="BuildFailed", message=message)


def _proxy_problems(proxy: Proxy, now: float) -> Iterator[tuple[str, str]]:
    """Yield the reason and the message of each problem; the name of the proxy goes before the message."""
    status, waiting = proxy.status, proxy.status.waiting_since_time
    if status.state == "Refused":
        yield "ProxyRefused", f"rejected {pluralize(len(status.refusals), 'resource')}: {status.message}"
    if status.state == "Lagging" and waiting and now - epoch_seconds(waiting) > LATE_S:
        yield "ProxyLagging", f"is lagging: {status.message}"
    if status.state == "Disconnected" and status.serves:
        yield "ProxyDisconnected", f"is disconnected: {status.message}"
    if status.process and not status.process.pid and status.process.failure_message:
        yield "ProxyNotRunning", f"does not run: {status.process.failure_message}"
    if (certificate := status.certificate) and certificate.message:
        yield "CertificateUnavailable", f"gets no certificate: {certificate.message}"
    elif certificate and epoch_seconds(certificate.not_after_time or "") < now:
        yield "CertificateExpired", f"has a certificate that expired at {certificate.not_after_time}"


def _proxies(proxies: Sequence[Proxy]) -> ProxyCounts:
    states = Counter(proxy.status.state for proxy in proxies)
    processes = [proxy.status.process for proxy in proxies if proxy.status.process]
    return ProxyCounts(
        total=len(proxies),
        in_sync=states["InSync"],
        lagging=states["Lagging"],
        refused=states["Refused"],
        disconnected=states["Disconnected"],
        restarted=sum(process.restarts > 0 for process in processes),
        adopted=sum(process.adopted for process in processes),
    )


def _certificates(proxies: Sequence[Proxy]) -> CertificateCounts:
    certificates = [proxy.status.certificate for proxy in proxies if proxy.status.certificate]
    held = [certificate for certificate in certificates if certificate.not_after_time]
    return CertificateCounts(
        total=len(held),
        oldest_issue_time=min((certificate.issue_time for certificate in held if certificate.issue_time), default=None),
        first_expiry_time=min(
            (certificate.not_after_time for certificate in held if certificate.not_after_time), default=None
        ),
        faults=sum(bool(certificate.message) for certificate in certificates),
    )


def _findings(findings: Sequence[Finding]) -> FindingCounts:
    count = Counter(finding.reason.severity for finding in findings)
    return FindingCounts(errors=count[Severity.ERROR], warnings=count[Severity.WARNING], notes=count[Severity.NOTE])
