"""What a build says about each object, and which objects a port or a pod concerns (pure)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from headgate.compiler.report import Compiled, Finding, GatewayOutcome, Outcome, ParentStatus
from headgate.envoy.names import GatewayRef, Place
from headgate.plane.status.conditions import Said
from headgate.resources.meta import Key


def said_of(compiled: Compiled) -> Mapping[Key, Said]:
    """Return what a build says, by object; what has nothing but a generation is left out."""
    report = compiled.report
    findings: dict[Key, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        findings[finding.about].append(finding)
    outcomes: dict[Key, list[Outcome]] = defaultdict(list)
    for outcome in report.outcomes:
        outcomes[outcome.about].append(outcome)
    parents: dict[Key, list[ParentStatus]] = defaultdict(list)
    for parent in report.parents:
        parents[parent.about].append(parent)
    gateways: dict[Key, GatewayOutcome] = {gateway.about: gateway for gateway in report.gateways}
    selected = {item.about: item for item in report.selected}
    underway = {item.name for item in compiled.mesh.workloads if item.stage is not item.target}
    return {
        key: Said(
            generation=report.seen.get(key, 0),
            findings=tuple(findings.get(key, ())),
            outcomes=tuple(outcomes.get(key, ())),
            parents=tuple(parents.get(key, ())),
            gateway=gateways.get(key),
            selected=(found := selected.get(key)),
            underway=tuple(name for name in (found.workloads if found else ()) if name in underway),
        )
        for key in dict.fromkeys((*findings, *outcomes, *parents, *gateways, *selected))
    }


class Reported:
    """One build by object."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self._said = said_of(compiled)

    def keys(self, kinds: Iterable[tuple[str, str]]) -> Iterator[Key]:
        """Yield the objects of some kinds, as (group, kind), and all that there is something to say about."""
        wanted = frozenset(kinds)
        yield from dict.fromkeys(
            (*(key for key in self.compiled.report.seen if (key.group, key.kind) in wanted), *self._said)
        )

    def said(self, key: Key) -> Said:
        """Return what the build says about an object."""
        return self._said.get(key) or Said(generation=self.compiled.report.seen.get(key, 0))

    @cached_property
    def is_underway(self) -> bool:
        """Whether a workload is not in the stage that is wanted of it."""
        return any(item.stage is not item.target for item in self.compiled.mesh.workloads)

    @cached_property
    def at(self) -> Mapping[Place | str, Sequence[Key]]:
        """The objects that decide for a port, and those that select a pod (`namespace/pod`)."""
        found: dict[Place | str, list[Key]] = defaultdict(list)
        for key, said in self._said.items():
            for place in (*_places(said), *(said.selected.workloads if said.selected else ())):
                found[place].append(key)
        return found


def _places(said: Said) -> Iterator[Place]:
    """Yield the ports that an object decides for."""
    yield from (outcome.ref for outcome in said.outcomes)
    for parent in said.parents:
        yield from parent.ports
        gateway = f"{parent.parent.namespace}/{parent.parent.name}"
        yield from (GatewayRef(gateway, port) for port in parent.gateway_ports)
    if said.gateway:
        about = said.gateway.about
        yield from (GatewayRef(f"{about.namespace}/{about.name}", port) for port in said.gateway.ports)
