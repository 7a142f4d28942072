"""Derives the smallest set of TrafficTargets that allow recorded calls.

A TrafficTarget is of one ServiceAccount, port and protocol, because its `destination.port` limits it to exactly this port. The
records have no methods and paths, so its rule is all requests or all connections.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from headgate.kinds import ACCESS, SPECS
from headgate.resources.call_records import CallRecord
from headgate.resources.meta import Object
from headgate.resources.registry import ROUTE_GROUP, TCP_ROUTE, TRAFFIC_TARGET
from headgate.resources.smi import AUDIT, MODE

ALL_REQUESTS, ALL_CONNECTIONS = "all-requests", "all-connections"
_LONGEST_NAME = 240  # so that a name with a port has at most 253 characters
_TARGETS = f"{ACCESS}/v1alpha2"  # the newest version whose destination has a port in the specification
_ROUTES = f"{SPECS}/v1alpha4"
_ACCOUNT = "ServiceAccount"


class Destination(NamedTuple):
    """A port of the pods of a ServiceAccount, and the protocol of its calls."""

    namespace: str
    account: str
    port: int
    protocol: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.account} port {self.port} ({self.protocol})"


class GeneratedTarget(NamedTuple):
    """A generated TrafficTarget, the recorded calls that it allows, and those of excluded callers that it refuses."""

    destination: Destination
    allowed: Sequence[CallRecord]
    refused: Sequence[CallRecord]
    manifest: Object


class Rules(NamedTuple):
    """The generated TrafficTargets, the routes of each namespace to which they refer, and what is left out.

    `left_out` has the ServiceAccounts (`namespace/name`) without TrafficTargets, each with the recorded calls that no
    TrafficTarget can allow.
    """

    targets: Sequence[GeneratedTarget]
    routes: Mapping[str, Sequence[Object]]
    left_out: Mapping[str, Sequence[CallRecord]]


def derive(records: Iterable[CallRecord], *, exclude: Collection[str] = (), audit: bool = False) -> Rules:
    """Return the rules that allow all recorded calls except those of the callers in `exclude`.

    A TrafficTarget closes all ports of a ServiceAccount's pods. So an account gets none if one of its calls can't be allowed,
    unless its caller is excluded.
    """
    by_account: dict[str, list[CallRecord]] = defaultdict(list)
    for record in records:
        by_account[_account(record)].append(record)
    targets: list[GeneratedTarget] = []
    left_out: dict[str, Sequence[CallRecord]] = {}
    for account, calls in sorted(by_account.items()):
        kept = [item for item in calls if item.caller_name not in exclude]
        if barred := [item for item in kept if not (item.caller and item.port)]:
            left_out[account] = barred
        else:
            targets += _targets(kept, [item for item in calls if item not in kept], audit=audit)
    return Rules(targets, _routes(targets), left_out)


def is_allowed(record: CallRecord, manifests: Iterable[Object]) -> bool:
    """Say whether one of the generated TrafficTargets allows a recorded call, read from the manifest alone."""
    return any(_allows(manifest, record) for manifest in manifests)


def _allows(manifest: Object, record: CallRecord) -> bool:
    spec, namespace = manifest["spec"], manifest["metadata"]["namespace"]
    destination = spec["destination"]
    wanted = ROUTE_GROUP.kind if record.protocol == "http" else TCP_ROUTE.kind
    return (
        (namespace, destination["name"]) == (record.metadata.namespace, record.metadata.name)
        and destination["port"] == record.port
        and record.caller in {f"{item['namespace']}/{item['name']}" for item in spec["sources"]}
        and any(rule["kind"] == wanted for rule in spec["rules"])
    )


def _account(record: CallRecord) -> str:
    return f"{record.metadata.namespace}/{record.metadata.name}"


def _targets(
    kept: Sequence[CallRecord], excluded: Sequence[CallRecord], *, audit: bool
) -> Iterable[GeneratedTarget]:
    allowed: dict[Destination, list[CallRecord]] = defaultdict(list)
    refused: dict[Destination, list[CallRecord]] = defaultdict(list)
    for found, calls in ((allowed, kept), (refused, excluded)):
        for item in calls:
            found[Destination(item.metadata.namespace, item.metadata.name, item.port, item.protocol)].append(item)
    for where in sorted({*allowed, *refused}):
        manifest = _manifest(where, sorted({item.caller for item in allowed[where]}), audit=audit)
        yield GeneratedTarget(where, allowed[where], refused[where], manifest)


def _manifest(where: Destination, callers: Sequence[str], *, audit: bool) -> Object:
    kind, route = (ROUTE_GROUP, ALL_REQUESTS) if where.protocol == "http" else (TCP_ROUTE, ALL_CONNECTIONS)
    name = f"{where.account[:_LONGEST_NAME].rstrip('.-')}-{where.protocol}-{where.port}"
    metadata = {"name": name, "namespace": where.namespace}
    sources = [dict(zip(("namespace", "name"), caller.split("/", 1), strict=True)) for caller in callers]
    return {
        "apiVersion": _TARGETS,
        "kind": TRAFFIC_TARGET.kind,
        "metadata": {**metadata, "annotations": {MODE: AUDIT}} if audit else metadata,
        "spec": {
            "destination": {"kind": _ACCOUNT, "name": where.account, "port": where.port},
            "sources": [{"kind": _ACCOUNT, **source} for source in sources],
            "rules": [{"kind": kind.kind, "name": route}],
        },
    }


def _routes(targets: Iterable[GeneratedTarget]) -> Mapping[str, Sequence[Object]]:
    needed: dict[str, set[str]] = defaultdict(set)
    for item in targets:
        needed[item.destination.namespace].add(item.destination.protocol)
    return {
        namespace: [_route(namespace, protocol) for protocol in sorted(protocols)]
        for namespace, protocols in needed.items()
    }


def _route(namespace: str, protocol: str) -> Object:
    if protocol == "http":
        kind, name, matches = ROUTE_GROUP.kind, ALL_REQUESTS, [{"name": "all", "methods": ["*"]}]
        return _object(kind, name, namespace, {"matches": matches})
    return _object(TCP_ROUTE.kind, ALL_CONNECTIONS, namespace, {"matches": {"ports": []}})


def _object(kind: str, name: str, namespace: str, spec: Mapping[str, object]) -> Object:
    return {"apiVersion": _ROUTES, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
