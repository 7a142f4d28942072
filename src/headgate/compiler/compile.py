"""Objects in, mesh and report out. Everything is computed anew; equal input gives equal output, whatever its order."""

from headgate.compiler import protocols, repeated_names, services, witness
from headgate.compiler.endpoints import endpoints
from headgate.compiler.gateway_api import GatewayApi
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled, Finding, Report
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.splits import Claims
from headgate.model.refs import PortRef
from headgate.model.routing import Mesh
from headgate.settings import Settings


def compile_mesh(snapshot: Snapshot, settings: Settings) -> Compiled:
    """Compile a snapshot. Never raises for what users wrote: their mistakes are findings."""
    owners = services.address_owners(snapshot.services)
    frontends = {name: services.frontend(name, item, owners, settings) for name, (_, item) in snapshot.services.items()}
    places = [entry for name, (_, item) in snapshot.services.items() for entry in endpoints(snapshot, name, item)]
    claims = Claims(snapshot, {entry.ref: entry.ready for entry in places}, settings)
    for key, split in snapshot.splits:
        claims.add(key, split)
    findings = [
        finding
        for name, (key, item) in snapshot.services.items()
        for finding in services.findings(key, item, frontends[name], owners)
    ]
    findings += [*protocols.findings(snapshot, places), *repeated_names.findings(snapshot), *_undecodable(snapshot)]
    refs = [PortRef(front.service, port) for front in frontends.values() for port in front.ports]
    api = GatewayApi(snapshot, claims.ready, tuple(claims.table(ref) for ref in refs), settings)
    gateways = api.ports()
    mesh = Mesh(
        domain=settings.domain,
        frontends=tuple(front for front in frontends.values() if front.ports),
        tables=api.tables(),
        endpoints=tuple(places),
        gateways=gateways,
    )
    report = Report(
        seen={key: item.metadata.generation for key, item in snapshot.objects.items()}
        | dict.fromkeys(snapshot.undecodable, 0),
        findings=tuple(
            sorted([*findings, *claims.findings, *api.findings, *witness.findings(snapshot, mesh)], key=_order)
        ),
        outcomes=tuple(sorted(claims.outcomes, key=lambda outcome: (outcome.about, outcome.ref))),
        parents=tuple(sorted(api.parents, key=lambda status: (status.about, status.index))),
        gateways=tuple(api.outcomes(gateways)),
    )
    return Compiled(revision=snapshot.revision, mesh=mesh, report=report)


def _undecodable(snapshot: Snapshot) -> list[Finding]:
    return [
        Finding(about=key, reason=Reason.INVALID, field=cause.field, message=cause.message)
        for key, causes in snapshot.undecodable.items()
        for cause in causes
    ]


def _order(finding: Finding) -> tuple[object, ...]:
    return (finding.about, finding.field, finding.reason.value, finding.message)
