"""Sums up the state of a mesh for `headgate status`, which exits with 1 if there are problems."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import headgate
from headgate.compiler.reasons import Severity
from headgate.compiler.report import Finding
from headgate.formatting import pluralize
from headgate.resources.inspect import Proxy
from headgate.resources.mesh_status import (
    CertificateCounts,
    FindingCounts,
    MeshState,
    PodCounts,
    ProxyCounts,
    Revisions,
    SettingsInForce,
    StoreState,
    WorkloadCounts,
)
from headgate.resources.meta import epoch_seconds, timestamp
from headgate.settings import DEFAULTS, Settings

LATE_S = 5.0  # seconds without an answer after which a lagging proxy is reported as a problem


class HostState(NamedTuple):
    """The state of the control plane's environment.

    `pods` is None if a Kubernetes cluster runs the pods, `store` if its API server has the objects, and `workloads` if the
    pods can't be read. `missing_kinds` are the kinds that the API server does not serve, as `PLURAL.GROUP`. `problems` has a
    sentence for each further problem.
    """

    pods: PodCounts | None = None
    workloads: WorkloadCounts | None = None
    store: StoreState | None = None
    missing_kinds: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Observed(NamedTuple):
    """The state of a mesh at one moment."""

    revisions: Revisions
    proxies: Sequence[Proxy]
    findings: Sequence[Finding]
    host: HostState = HostState()
    settings: Settings = DEFAULTS


def mesh_state(mesh: Observed, *, started: float, now: float) -> MeshState:
    """Return the summary of a mesh, with its problems. Times are seconds since the epoch."""
    problems = tuple(_problems(mesh, now))
    return MeshState(
        healthy=not problems,
        problems=problems,
        started=timestamp(started),
        headgate=headgate.__version__,
        revisions=mesh.revisions,
        proxies=_proxies(mesh.proxies),
        certificates=_certificates(mesh.proxies),
        findings=_findings(mesh.findings),
        pods=mesh.host.pods,
        workloads=mesh.host.workloads,
        store=mesh.host.store,
        missing_kinds=mesh.host.missing_kinds,
        settings=SettingsInForce(
            domain=mesh.settings.domain,
            trust_domain=mesh.settings.trust_domain,
            mtls=mesh.settings.mtls,
            access=mesh.settings.access,
            outbound=mesh.settings.outbound,
        ),
    )


def _problems(mesh: Observed, now: float) -> Iterator[str]:
    yield from mesh.host.problems
    if mesh.host.store:
        yield from mesh.host.store.write_problems()
        yield from mesh.host.store.damages()
    for workload in mesh.host.workloads.unready if mesh.host.workloads else ():
        about = workload.object
        yield f"{about.kind} {about.namespace}/{about.name}: {workload.text()}"
    for proxy in mesh.proxies:
        yield from _proxy_problems(proxy, now)
    if errors := _findings(mesh.findings).errors:
        yield f"{pluralize(errors, 'error')} in objects: run `headgate check` to list them"
    if mesh.revisions.failures and not mesh.revisions.current:
        stored = mesh.revisions.stored
        yield f"revision {stored} can't be built because of a bug in headgate: see its log"


def _proxy_problems(proxy: Proxy, now: float) -> Iterator[str]:
    status = proxy.status
    if status.state == "Refused":
        yield f"{proxy.node} rejected {pluralize(len(status.refusals), 'resource')}: {status.message}"
    if status.state == "Lagging" and status.waiting and now - epoch_seconds(status.waiting) > LATE_S:
        yield f"{proxy.node} is lagging: {status.message}"
    if status.state == "Disconnected" and status.serves:
        yield f"{proxy.node} is disconnected: {status.message}"
    if status.process and not status.process.pid and status.process.failure:
        yield f"{proxy.node} does not run: {status.process.failure}"
    if (certificate := status.certificate) and certificate.fault:
        yield f"{proxy.node} gets no certificate: {certificate.fault}"
    elif certificate and epoch_seconds(certificate.not_after) < now:
        yield f"{proxy.node} has a certificate that expired at {certificate.not_after}"


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
    found = [proxy.status.certificate for proxy in proxies if proxy.status.certificate]
    held = [one for one in found if one.not_after]
    return CertificateCounts(
        total=len(held),
        oldest=min((one.issued for one in held), default=""),
        first_expiry=min((one.not_after for one in held), default=""),
        faults=sum(bool(one.fault) for one in found),
    )


def _findings(findings: Sequence[Finding]) -> FindingCounts:
    count = Counter(item.reason.severity for item in findings)
    return FindingCounts(errors=count[Severity.ERROR], warnings=count[Severity.WARNING], notes=count[Severity.NOTE])
