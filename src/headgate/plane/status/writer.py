"""Writes what the compiler and the proxies say onto the users' objects: conditions, shares, Events.

Off the path of publishing: it looks at the latest state when something changed, a moment later, and writes what differs.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled, Finding, GatewayOutcome, Outcome, ParentStatus
from headgate.envoy import names
from headgate.envoy.config import LISTENER, SCOPES, TypeUrl
from headgate.envoy.view import SIDECAR
from headgate.errors import Conflict, NotFound, StoreError
from headgate.latest import Latest
from headgate.model.refs import PortRef
from headgate.model.routing import Mesh
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Store
from headgate.plane.loop import Loop
from headgate.plane.status.announcements import Announcements
from headgate.plane.status.conditions import Present, Said, few, split_status, summary
from headgate.plane.status.gateway import class_status, gateway_status
from headgate.plane.status.mesh import mesh_status, names_in
from headgate.plane.status.mirror_limits import dropped_copies
from headgate.plane.status.route import route_status
from headgate.plane.status.service import service_status
from headgate.plane.trust import faults
from headgate.resources import times
from headgate.resources.meta import Key, Object
from headgate.resources.registry import ACCESS, GATEWAY, MESH, POD, SERVICE, SPLIT
from headgate.xds.fleet import Fleet
from headgate.xds.session import IN_USE, Rejected

SETTLE_SECONDS = 0.02  # lets the proxies' answers to a change arrive, so that one status tells it all
COMPONENT = "headgate"
PROXY = "Proxy"  # the kind of what a gateway has for itself
_Judge = Callable[[Object, Said, Present], Mapping[str, Any] | None]
STATUSES: Mapping[tuple[str, str], _Judge] = {
    (SPLIT, "TrafficSplit"): split_status,
    (GATEWAY, "GatewayClass"): class_status,
    (GATEWAY, "Gateway"): gateway_status,
    (GATEWAY, "HTTPRoute"): route_status,
    (GATEWAY, "GRPCRoute"): route_status,
    (GATEWAY, "TCPRoute"): route_status,
    (MESH, "TLSConfig"): mesh_status,
    (ACCESS, "TrafficTarget"): mesh_status,
}
"""The kinds whose status headgate writes: each with the function that returns it, or None to leave it alone."""
_OF_FAULTS: Mapping[tuple[str, str], _Judge] = {(SERVICE.group, SERVICE.kind): service_status}
"""Kinds that get a status only when something is wrong: to look at each of their objects each time would cost too much."""

log = logging.getLogger(__name__)


def refusals(compiled: Compiled, fleet: Fleet) -> tuple[Finding, ...]:
    """Return the proxies' refusals as findings on the objects to blame."""
    origin = origins(compiled)
    refusing: dict[tuple[Key, Rejected], list[str]] = defaultdict(list)
    for proxy in fleet.connected():
        for rejected in proxy.refusals():
            about = origin(proxy.id, rejected.type_url, rejected.name)
            refusing[about, rejected].append(proxy.id)
    return tuple(
        Finding(about=about, reason=Reason.ENVOY_REJECTED, field="", message=_refused(proxies, rejected))
        for (about, rejected), proxies in refusing.items()
    )


Origin = Callable[[str, TypeUrl, str], Key]
"""Returns the object that a proxy's (node id) resource comes from, by its type and name."""


def origins(compiled: Compiled) -> Origin:
    """Return the function that finds the object behind a resource, the one to blame when a proxy refuses it.

    That is the split or the route whose own the resource is, the Gateway for what is between and for its certificates, the
    pod for what is its sidecar's alone, else the Service. What each gateway has for itself comes from no object: its key is
    of the kind Proxy.
    """
    owners = {outcome.ref: outcome.about for outcome in compiled.report.outcomes}
    showing = {
        names.secret(shown.secret): Key(GATEWAY, "Gateway", *port.gateway.split("/"))
        for port in compiled.mesh.gateways
        for _, shown in port.tls
    }
    return lambda node_id, type_url, name: showing.get(name) or _origin(node_id, type_url, name, owners)


def _refused(proxies: Sequence[str], rejected: Rejected) -> str:
    who = f"the proxy {proxies[0]}" if len(proxies) == 1 else f"the proxies {few(proxies)}"
    return f"{who} refused {rejected.name}: {rejected.message.strip()}{_advice(rejected)}"


def _advice(rejected: Rejected) -> str:
    if IN_USE not in rejected.message:
        return ""
    other = "" if rejected.name.startswith(names.INBOUND) else " or give the Service another port"
    return f"; free the address{other}: it is tried again every few seconds"


def _origin(node_id: str, type_url: TypeUrl, name: str, owners: Mapping[PortRef, Key]) -> Key:
    route, gateway = names.parse_rule(name), names.parse_gateway(name)
    if route:
        return route
    if gateway:
        return Key(GATEWAY, "Gateway", *gateway.gateway.split("/"))
    ref = names.parse(name)
    if ref is None:
        kind, _, pod = node_id.partition("/")
        return POD.key(*pod.split("/")) if kind == SIDECAR else Key("", PROXY, "", name)
    if type_url not in {LISTENER, SCOPES} and ref in owners:
        return owners[ref]
    return SERVICE.key(*ref.service.split("/"))


class StatusWriter:
    """Keeps `status` and Events of the users' objects true."""

    def __init__(self, store: Store, loop: Loop, fleet: Fleet, dropped: Latest[Mapping[str, int]]) -> None:
        """`dropped` are copies that are dropped now, by the name of the mirror's cluster."""
        self._dropped = dropped
        self._store = store
        self._loop = loop
        self._compiled = loop.compiled
        self._faults = loop.credentials.faults
        self._staging = loop.staging
        self._fleet = fleet
        self._events = EventRecorder(store, COMPONENT)
        self._announcements = Announcements(store, self._events)
        self._shares: dict[Key, str] = {}
        self._withheld: set[Key] = set()

    async def run(self) -> None:
        """Write for ever. A write that fails is repeated with the next look, a second later at most."""
        wake = asyncio.Event()

        async def follow(cell: Latest[Any]) -> None:
            async for _ in cell.changes():
                wake.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(follow(self._compiled), name="status follows builds")
            group.create_task(follow(self._fleet.news), name="status follows proxies")
            group.create_task(follow(self._faults), name="status follows certificates")
            group.create_task(follow(self._dropped), name="status follows mirrors")
            while True:
                await wake.wait()
                await asyncio.sleep(SETTLE_SECONDS)
                wake.clear()
                if not await self._look():
                    await asyncio.sleep(1)
                    wake.set()

    async def _look(self) -> bool:
        compiled = self._compiled.get()
        if compiled is None:
            return True
        present = Present(self._fleet.serving(), times.timestamp(time.time()), self._staging.waiting())
        told = (
            *refusals(compiled, self._fleet),
            *faults(self._faults.get()),
            *dropped_copies(compiled.mesh, self._dropped.get()),
        )
        said = said_of(compiled, told, frozenset(self._unnamed(compiled.mesh)))
        kinds = (
            STATUSES.keys() if self._announcements.keys() else STATUSES.keys() | _OF_FAULTS.keys()
        )  # of an earlier run
        written = [key for key in compiled.report.seen if (key.group, key.kind) in kinds]
        for key in self._announcements.keys() - compiled.report.seen.keys():
            self._announcements.forget(key)
            self._shares.pop(key, None)
            self._withheld.discard(key)
        done = True
        for key in dict.fromkeys((*written, *said, *self._announcements.keys())):
            known = said.get(key) or Said(generation=compiled.report.seen.get(key, 0))
            done &= await self._tell(key, known, present)
        return done

    def _unnamed(self, mesh: Mesh) -> Iterator[str]:
        """Yield the workloads whose certificate does not carry all names yet that it is to carry (R75)."""
        for item in mesh.workloads:
            credential = self._loop.proven(f"{SIDECAR}/{item.name}") if item.subjects else None
            if item.subjects and not (credential and names_in(credential.chain).issuperset(item.subjects)):
                yield item.name

    async def _tell(self, key: Key, said: Said, present: Present) -> bool:
        try:
            obj = await self._store.get(key)
            held = await self._announcements.held(key, obj, said.findings)
            fresh = await self._write(key, obj, said, present, announce=not held)
            findings = [finding for finding in said.findings if finding not in held]
            await self._announcements.announce(key, obj, findings, fresh=fresh)
        except NotFound:
            return True
        except Conflict:
            return False
        except StoreError as error:
            log.warning("the status of %s can't be written: %s", key, error)
            return False
        return not held

    async def _write(self, key: Key, obj: Object, said: Said, present: Present, *, announce: bool) -> bool:
        """Write an object's status where it differs, and an Event about its shares; return whether it differs."""
        kind = (key.group, key.kind)
        judge = STATUSES.get(kind) or _OF_FAULTS.get(kind)
        status = judge(obj, said, present) if judge else None
        if status is None:
            return True
        fresh = status != obj.get("status")
        if fresh:
            await self._store.update({**obj, "status": status}, subresource="status")
        if not announce:
            self._withheld.add(key)
        elif said.outcomes and _is_programmed(status):
            await self._announce_shares(key, obj, summary(said.outcomes), fresh=fresh or key in self._withheld)
            self._withheld.discard(key)
        return fresh

    async def _announce_shares(self, key: Key, obj: Object, text: str, *, fresh: bool) -> None:
        """Write an Event when every proxy holds other shares than before."""
        known = self._shares.get(key)
        self._shares[key] = text
        if known != text and (known or fresh):
            reason = "WeightsChanged" if known else "Programmed"
            await self._events.record(obj, type="Normal", reason=reason, message=f"every proxy holds {text}")


def said_of(
    compiled: Compiled, refused: tuple[Finding, ...], unnamed: frozenset[str] = frozenset()
) -> Mapping[Key, Said]:
    """Return all that there is to tell, by object; what has nothing but a generation is left out.

    `unnamed` are all workloads whose certificate lacks names.
    """
    report = compiled.report
    findings: dict[Key, list[Finding]] = defaultdict(list)
    for finding in (*report.findings, *refused):
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
            unnamed=tuple(name for name in (found.workloads if found else ()) if name in unnamed),
        )
        for key in dict.fromkeys((*findings, *outcomes, *parents, *gateways, *selected))
    }


def _is_programmed(status: Mapping[str, Any]) -> bool:
    return any(item["type"] == "Programmed" and item["status"] == "True" for item in status.get("conditions", ()))
