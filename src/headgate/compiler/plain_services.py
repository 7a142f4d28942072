"""Compile Services alone: what depends on no other object."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import structs

from headgate.compiler import protocols, services
from headgate.compiler.protocols import ProtocolChoice
from headgate.compiler.report import Finding
from headgate.compiler.resilience import of_services
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.splits import plain_table
from headgate.model.resilience import Resilience
from headgate.model.routing import Frontend, PortRef, RouteTable
from headgate.settings import Settings


class PlainServices(NamedTuple):
    """The results that depend on Services only: frontends, protocols, route tables, settings and findings."""

    frontends: tuple[Frontend, ...]
    choices: Mapping[PortRef, ProtocolChoice]
    plain: Mapping[PortRef, RouteTable]
    resilience: Mapping[str, Resilience]
    findings: tuple[Finding, ...]


def plain_services(snapshot: Snapshot, settings: Settings, other_proxies: frozenset[str]) -> PlainServices:
    """Compile what depends on Services only; `other_proxies` has those that a proxy without xDS serves."""
    owners = services.address_owners(snapshot.services)
    frontends = {
        name: structs.replace(services.frontend(name, service, owners, settings), other_proxy=name in other_proxies)
        for name, (_, service) in snapshot.services.items()
    }
    choices = protocols.choices(snapshot)
    refs = [PortRef(front.service, port) for front in frontends.values() for port in front.ports]
    findings = [
        finding
        for name, (key, service) in snapshot.services.items()
        for finding in services.findings(key, service, frontends[name], owners, settings)
    ]
    resilience = of_services(snapshot)
    return PlainServices(
        frontends=tuple(front for front in frontends.values() if front.ports),
        choices=choices,
        plain={ref: plain_table(ref, choices[ref].protocol) for ref in refs},
        resilience=resilience.settings,
        findings=(*findings, *resilience.findings, *protocols.unknown(snapshot)),
    )
