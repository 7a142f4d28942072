"""Objects in, mesh and report out. Everything is computed anew; equal input gives equal output, whatever its order."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from headgate.compiler import external_names, protocols, services, target_ports, witness
from headgate.compiler.endpoints import endpoints, identified
from headgate.compiler.gateway_api import repeated_names
from headgate.compiler.gateway_api.compile import GatewayApi
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled, Finding, Report
from headgate.compiler.secured import secure
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.splits import Claims
from headgate.compiler.workloads import has_sidecar, workloads
from headgate.model.refs import PortRef
from headgate.model.routing import LONGEST_CONNECTION_S, Frontend, Mesh, roots
from headgate.model.workloads import Stage
from headgate.resources.meta import Key
from headgate.resources.pods import Pod
from headgate.resources.smi import TrafficTarget
from headgate.settings import Settings

CONNECTION_SHARE = 4
"""A certificate has two fifths of its life left at least while it is renewed in time: so a connection that begins with it,
and lasts for a quarter of a life, ends before it does."""
ALL_ARRIVED: Mapping[str, Stage] = MappingProxyType({})


def compile_mesh(snapshot: Snapshot, settings: Settings, stages: Mapping[str, Stage] = ALL_ARRIVED) -> Compiled:
    """Compile a snapshot. Never raises for what users wrote: their mistakes are findings.

    `stages` is what is in force for the workloads (`namespace/pod`) that are on their way to what is wanted of them.
    """
    owners = services.address_owners(snapshot.services)
    frontends = {name: services.frontend(name, item, owners, settings) for name, (_, item) in snapshot.services.items()}
    places = [
        entry
        for name, (_, item) in snapshot.services.items()
        for entry in endpoints(snapshot, name, item, settings.domain)
    ]
    claims = Claims(snapshot, {entry.ref: entry.ready for entry in places}, settings)
    for key, split in snapshot.splits:
        claims.add(key, split)
    refs = [PortRef(front.service, port) for front in frontends.values() for port in front.ports]
    tables = tuple(claims.table(ref) for ref in refs)
    api = GatewayApi(snapshot, claims.ready, tables, settings)
    secured = secure(snapshot, settings, workloads(snapshot, settings, roots(tables)), stages)
    plain = Mesh(
        domain=settings.domain,
        trust_domain=settings.trust_domain,
        passthrough=settings.outbound == "allow",
        scoped=settings.access == "deny",
        connection_seconds=min(LONGEST_CONNECTION_S, settings.certificate_seconds // CONNECTION_SHARE),
        frontends=tuple(front for front in frontends.values() if front.ports),
        gateways=api.ports(),
        tables=api.tables(),
        endpoints=identified(places, secured.workloads),
        workloads=secured.workloads,
    )
    mesh = external_names.with_hosts(plain)
    findings = [
        *_service_findings(snapshot, frontends, owners),
        *(
            found
            for key, item in snapshot.services.values()
            for found in external_names.finding(key, item, settings.domain)
        ),
        *protocols.findings(snapshot, places),
        *target_ports.findings(snapshot),
        *repeated_names.findings(snapshot),
        *_undecodable(snapshot),
        *claims.findings,
        *api.findings,
        *secured.findings,
        *witness.findings(snapshot, mesh),
    ]
    report = Report(
        seen={key: item.metadata.generation for key, item in snapshot.objects.items()}
        | dict.fromkeys(snapshot.undecodable, 0),
        findings=tuple(sorted(findings, key=_order)),
        outcomes=tuple(sorted(claims.outcomes, key=lambda outcome: (outcome.about, outcome.ref))),
        parents=tuple(sorted(api.parents, key=lambda status: (status.about, status.index))),
        gateways=tuple(api.outcomes(mesh.gateways)),
        selected=secured.selected,
    )
    return Compiled(revision=snapshot.revision, mesh=mesh, report=report)


def _service_findings(
    snapshot: Snapshot, frontends: Mapping[str, Frontend], owners: Mapping[str, str]
) -> Iterator[Finding]:
    for name, (key, item) in snapshot.services.items():
        yield from services.findings(key, item, frontends[name], owners)


def _undecodable(snapshot: Snapshot) -> list[Finding]:
    return [
        Finding(about=key, reason=Reason.INVALID, field=cause.field, message=f"{cause.message}{_kept(snapshot, key)}")
        for key, causes in snapshot.undecodable.items()
        for cause in causes
    ]


def _kept(snapshot: Snapshot, key: Key) -> str:
    """Say what an object with mistakes does all the same."""
    left = snapshot.remains.get(key)
    if isinstance(left, TrafficTarget):
        return (
            f"; until it is corrected, it keeps ServiceAccount {left.spec.destination.name} closed and allows nothing"
        )
    if isinstance(left, Pod):
        return "; until it is corrected, its sidecar guards every port" if has_sidecar(left) else ""
    return "; until it is corrected, its pods take mutual TLS only and have no names of it" if left else ""


def _order(finding: Finding) -> tuple[object, ...]:
    return (finding.about, finding.field, finding.reason.value, finding.message)
