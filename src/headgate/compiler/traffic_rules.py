"""Derives the smallest set of TrafficTargets that allow recorded calls.

A TrafficTarget is of one ServiceAccount, port and protocol, because its `destination.port` limits it to exactly this port. The
records have no methods and paths, so its rule is all requests or all connections.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.snapshot import Snapshot
from headgate.kinds import ACCESS, SPECS
from headgate.resources.audit_mode import AUDIT, ENFORCE, MODE
from headgate.resources.call_records import CallRecord
from headgate.resources.decode import check
from headgate.resources.meta import Key, Object
from headgate.resources.registry import AUTHORIZATION_POLICY, ROUTE_GROUP, TCP_ROUTE, TRAFFIC_TARGET

ALL_REQUESTS, ALL_CONNECTIONS = "all-requests", "all-connections"
_LONGEST = 253
_LONGEST_REQUEST = 60  # of a name made of a method and a path
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 240  # so that a name with a port has at most 253 characters
_TARGETS = f"{ACCESS}/v1alpha2"  # the newest version whose destination has a port in the specification
_ROUTES = f"{SPECS}/v1alpha4"
_ACCOUNT = "ServiceAccount"


class CalledPort(NamedTuple):
    """A port on a ServiceAccount's pods, and the protocol of its calls; without a port, all ports."""

    namespace: str
    account: str
    port: int = 0
    protocol: str = ""

    def __str__(self) -> str:
        port = f" port {self.port} ({self.protocol})" if self.port else ""
        return f"{self.namespace}/{self.account}{port}"


class GeneratedRule(NamedTuple):
    """A generated TrafficTarget or policy, the recorded calls that it allows, and those of excluded callers that it refuses."""

    destination: CalledPort
    allowed: Sequence[CallRecord]
    refused: Sequence[CallRecord]
    manifest: Object


class Rules(NamedTuple):
    """The generated objects, the routes of each namespace to which they refer, and what is left out.

    `left_out` has the ServiceAccounts (`namespace/name`) without objects, each with the recorded calls that none can allow.
    `unselected` has those whose pods no policy can select, each with the reason. `of_version` has those whose policy selects pods
    of the current version only, each with the labels of the selector that the next version changes.
    """

    targets: Sequence[GeneratedRule]
    routes: Mapping[str, Sequence[Object]]
    left_out: Mapping[str, Sequence[CallRecord]]
    unselected: Mapping[str, str] = {}
    of_version: Mapping[str, Sequence[str]] = {}


def derive(records: Iterable[CallRecord], *, exclude: Collection[str] = (), audit: bool = False) -> Rules:
    """Return the rules that allow all recorded calls except those of the callers in `exclude`.

    A TrafficTarget closes all ports of a ServiceAccount's pods. So an account gets none if one of its calls can't be allowed,
    unless its caller is excluded.
    """
    by_account: dict[str, list[CallRecord]] = defaultdict(list)
    for record in records:
        by_account[_account(record)].append(record)
    targets: list[GeneratedRule] = []
    left_out: dict[str, Sequence[CallRecord]] = {}
    for account, calls in sorted(by_account.items()):
        kept = [call for call in calls if call.caller_name not in exclude]
        if barred := [call for call in kept if not (call.caller and call.port)]:
            left_out[account] = barred
        else:
            targets += _targets(kept, [call for call in calls if call not in kept], audit=audit)
    return Rules(targets, _routes(targets), left_out)


def all_calls(caller: str, where: CalledPort, snapshot: Snapshot) -> tuple[Object, ...]:
    """Return the objects that allow all calls of one caller (`namespace/name`) to a port, as `allowing` does."""
    return allowing(caller, where, snapshot, _route(where.namespace, where.protocol))


def group_of_request(namespace: str, method: str, path_regex: str) -> Object:
    """Return an HTTPRouteGroup for the requests with a method and a path, with a name made of both."""
    name = _NOT_IN_NAMES.sub("-", f"{method}{path_regex}".lower()).strip("-")[:_LONGEST_REQUEST].rstrip("-")
    match = {"name": method.lower(), "methods": [method], "pathRegex": path_regex}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": _ROUTES, "kind": ROUTE_GROUP.kind, "metadata": metadata, "spec": {"matches": [match]}}


def allowing(
    caller: str, where: CalledPort, snapshot: Snapshot, route: Object, *, matches: Sequence[str] = ()
) -> tuple[Object, ...]:
    """Return the objects that allow one caller (`namespace/name`) the calls of a route to a port, in the order to create them.

    With `matches`, the rule names these matches of the route.
    They have names that no object has, so they change no existing rule. If a route with the same content exists, the
    TrafficTarget refers to it.
    """
    for name in _numbered(route["metadata"]["name"]):
        route = _renamed(route, name)
        if not _is_taken(snapshot, route) or _exists(snapshot, route):
            break
    rule = {"kind": route["kind"], "name": route["metadata"]["name"]}
    if matches:
        rule["matches"] = list(matches)
    target = _target(caller, where, snapshot, rule)
    return (target,) if _exists(snapshot, route) else (route, target)


def allowing_match(caller: str, where: CalledPort, snapshot: Snapshot, group: str, match: str) -> tuple[Object, ...]:
    """Return the TrafficTarget that allows one caller (`namespace/name`) the requests of an existing match."""
    return (_target(caller, where, snapshot, {"kind": ROUTE_GROUP.kind, "name": group, "matches": [match]}),)


def _target(caller: str, where: CalledPort, snapshot: Snapshot, rule: Object) -> Object:
    """Return a TrafficTarget with one rule for one caller, with a name that no object has."""
    target = _manifest(where, (caller,))
    target["spec"]["rules"] = [rule]
    for name in _numbered(f"{target['metadata']['name']}-from-{caller.replace('/', '.')}"):
        target = _renamed(target, name)
        if not _is_taken(snapshot, target):
            break
    return target


def _numbered(name: str) -> Iterator[str]:
    """Yield a name, then the same name with the suffixes -2, -3 and so on."""
    for suffix in chain([""], (f"-{number}" for number in count(2))):
        yield f"{name[: _LONGEST - len(suffix)].rstrip('.-')}{suffix}"


def _renamed(manifest: Object, name: str) -> Object:
    return {**manifest, "metadata": {**manifest["metadata"], "name": name}}


def _key(manifest: Object) -> Key:
    metadata = manifest["metadata"]
    return Key(manifest["apiVersion"].partition("/")[0], manifest["kind"], metadata["namespace"], metadata["name"])


def _is_taken(snapshot: Snapshot, manifest: Object) -> bool:
    """Return whether an object has the name of a manifest, also an invalid one."""
    key = _key(manifest)
    return key in snapshot.objects or key in snapshot.mistakes


def _exists(snapshot: Snapshot, manifest: Object) -> bool:
    """Return whether the object with the name of a manifest has the same content."""
    existing = snapshot.objects.get(_key(manifest))
    if existing is None:
        return False
    checked = check(manifest).value
    return checked is not None and structs.replace(checked, metadata=existing.metadata) == existing


def is_allowed(record: CallRecord, manifests: Iterable[Object]) -> bool:
    """Return whether one of the generated objects allows a recorded call, read from the manifest alone.

    A policy selects pods by labels: it must be that of the called account.
    """
    return any(
        _policy_allows(manifest, record) if manifest["kind"] == AUTHORIZATION_POLICY.kind else _allows(manifest, record)
        for manifest in manifests
    )


def _policy_allows(manifest: Object, record: CallRecord) -> bool:
    return any(
        record.port in rule["networkAttributes"]["ports"]
        and record.caller in {"/".join(source["serviceAccount"].values()) for source in rule["sources"]}
        for rule in manifest["spec"]["rules"]
    )


def _allows(manifest: Object, record: CallRecord) -> bool:
    spec, namespace = manifest["spec"], manifest["metadata"]["namespace"]
    destination = spec["destination"]
    kind = ROUTE_GROUP.kind if record.protocol == "HTTP" else TCP_ROUTE.kind
    return (
        (namespace, destination["name"]) == (record.metadata.namespace, record.metadata.name)
        and destination.get("port") == record.port
        and record.caller in {f"{source['namespace']}/{source['name']}" for source in spec["sources"]}
        and any(rule["kind"] == kind for rule in spec["rules"])
    )


def _account(record: CallRecord) -> str:
    return f"{record.metadata.namespace}/{record.metadata.name}"


def _targets(kept: Sequence[CallRecord], excluded: Sequence[CallRecord], *, audit: bool) -> Iterator[GeneratedRule]:
    """Yield a TrafficTarget for each port with an allowed caller; if there is none, yield a TrafficTarget without rules.

    The first one also has the excluded calls to ports without an allowed caller.
    """
    allowed: dict[CalledPort, list[CallRecord]] = defaultdict(list)
    for record in kept:
        allowed[_destination(record)].append(record)
    if not allowed:
        where = CalledPort(excluded[0].metadata.namespace, excluded[0].metadata.name)
        yield GeneratedRule(where, (), excluded, _with_mode(_manifest(where, ()), audit=audit))
    for index, where in enumerate(sorted(allowed)):
        refused = [
            record
            for record in excluded
            if _destination(record) == where or (index == 0 and _destination(record) not in allowed)
        ]
        callers = sorted({record.caller for record in allowed[where]})
        yield GeneratedRule(where, allowed[where], refused, _with_mode(_manifest(where, callers), audit=audit))


def _destination(record: CallRecord) -> CalledPort:
    return CalledPort(record.metadata.namespace, record.metadata.name, record.port, record.protocol)


def _manifest(where: CalledPort, callers: Sequence[str]) -> Object:
    suffix = f"{where.protocol.lower()}-{where.port}" if where.port else "closed"
    metadata = {"name": f"{where.account[:_LONGEST_NAME].rstrip('.-')}-{suffix}", "namespace": where.namespace}
    sources = [dict(zip(("namespace", "name"), caller.split("/", 1), strict=True)) for caller in callers]
    return {
        "apiVersion": _TARGETS,
        "kind": TRAFFIC_TARGET.kind,
        "metadata": metadata,
        "spec": {
            "destination": {"kind": _ACCOUNT, "name": where.account} | ({"port": where.port} if where.port else {}),
            "sources": [{"kind": _ACCOUNT, **source} for source in sources],
            "rules": [_rule(where.protocol)] if where.port else [],
        },
    }


def _with_mode(manifest: Object, *, audit: bool) -> Object:
    """Return an object with its mode as an annotation; an apply of an object without it would keep audit mode."""
    annotations = {MODE: AUDIT if audit else ENFORCE}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}


def _rule(protocol: str) -> Object:
    if protocol == "HTTP":
        return {"kind": ROUTE_GROUP.kind, "name": ALL_REQUESTS}
    return {"kind": TCP_ROUTE.kind, "name": ALL_CONNECTIONS}


def _routes(targets: Iterable[GeneratedRule]) -> Mapping[str, Sequence[Object]]:
    needed: dict[str, set[str]] = defaultdict(set)
    for target in targets:
        needed[target.destination.namespace] |= {target.destination.protocol} - {""}
    return {
        namespace: [_route(namespace, protocol) for protocol in sorted(protocols)]
        for namespace, protocols in needed.items()
    }


def _route(namespace: str, protocol: str) -> Object:
    rule = _rule(protocol)
    matches = [{"name": "all", "methods": ["*"]}] if protocol == "HTTP" else {"ports": []}
    metadata = {"name": rule["name"], "namespace": namespace}
    return {"apiVersion": _ROUTES, "kind": rule["kind"], "metadata": metadata, "spec": {"matches": matches}}
