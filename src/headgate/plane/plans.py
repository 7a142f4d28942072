"""Plan a change of the stored objects: compile them with the changed ones, and compare both results."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from headgate.compiler.snapshot import SERVICE_NAME_LABEL, Snapshot
from headgate.errors import HeadgateError, NotFound
from headgate.objects.ports import Reader
from headgate.plan.plan import World
from headgate.plan.planning import PlanQuery, PlanResult, checked_plan
from headgate.plane.feed import GROUP_KINDS, with_objects
from headgate.plane.live_state import LiveState
from headgate.plane.made_objects import made_objects
from headgate.plane.replaced_pods import NAMESPACE, Decide, with_replaced_pods
from headgate.resources.core import EndpointSlice
from headgate.resources.decode import check
from headgate.resources.meta import Key, Object, namespace_of, part
from headgate.resources.pod_templates import template_path
from headgate.resources.registry import SERVICE, key_of

PLAN_TIMEOUT_S = 20.0
_KEPT_METADATA = ("uid", "creationTimestamp", "generation", "resourceVersion", "ownerReferences")
_KEPT_OF_SERVICES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
"""Fields of a Service that the API server sets, and that an update without them does not change."""


_ONLY_LISTED = frozenset({("", "ConfigMap"), ("", "Secret")})
"""The kinds that a control plane on a cluster may list and watch, but not get: it needs only some of their objects."""


class InvalidChange(HeadgateError):
    """An object of a change has mistakes."""


async def planned(live_state: LiveState, query: PlanQuery, decide: Decide) -> PlanResult:
    """Return the plan of a change; `decide` says which pods get a sidecar.

    Raises InvalidChange, InvalidCheck, NotFound, and HeadgateError after a timeout.
    """
    objects, templates, ignored = _hub_versions(query)
    try:
        async with asyncio.timeout(PLAN_TIMEOUT_S):
            before = await live_state.wait_compiled()
            snapshot = live_state.feed.snapshot.get() or Snapshot()
            applied = [await _applied(live_state.store, snapshot, obj) for obj in objects]
            deleted = _deletions(snapshot, query)
            made = await made_objects(live_state, snapshot, applied, deleted)
            new = [*applied, *_expected_slices(snapshot, applied)]
            changes = {key: obj for key, (_, obj) in made.items()} | {key_of(obj): obj for obj in new}
            after = with_objects(snapshot, {**changes, **deleted})
            keys = {*map(key_of, objects), *query.deleted}
            predicted = with_replaced_pods(snapshot, after, templates, keys, decide)
            after = predicted.snapshot
            compiled = await live_state.preview(after)
    except TimeoutError as error:
        raise HeadgateError(f"the plan is not ready after {PLAN_TIMEOUT_S:g} s; see the log of headgate") from error
    keys |= made.keys()
    differing = frozenset(key for key in keys if snapshot.objects.get(key) != after.objects.get(key))
    makers = {key: maker for key, (maker, _) in made.items()}
    world = World(before, compiled, differing, snapshots=(snapshot, after), makers=makers)
    found = await asyncio.to_thread(checked_plan, world, query, changed=predicted.left_out)
    return PlanResult(plan=found.plan, verdicts=found.verdicts, ignored=ignored)


def _hub_versions(query: PlanQuery) -> tuple[list[Object], list[Object], tuple[str, ...]]:
    """Return in hub version the objects that the compiler reads and those with pod templates, and the names of all remaining ones."""
    found, templates, ignored = [], [], []
    for obj in query.objects:
        checked = check(obj)
        if checked.hub is None:
            cause = checked.causes[0]
            raise InvalidChange(
                f"{obj.get('kind')} {part(obj, 'metadata').get('name')}: {cause.field}: {cause.message}"
            )
        key = key_of(checked.hub)
        if (key.group, key.kind) in GROUP_KINDS:
            found.append(checked.hub)
        elif template_path(checked.hub):
            templates.append(checked.hub)
        else:
            ignored.append(str(key))
    return found, templates, tuple(ignored)


async def _applied(store: Reader, snapshot: Snapshot, obj: Object) -> Object:
    """Return an object as it is stored after it is applied: with the fields that the server sets and the user omits."""
    key = key_of(obj)
    stored: Object = {}
    if (key.group, key.kind) not in _ONLY_LISTED:
        with contextlib.suppress(NotFound):
            stored = await store.get(key)
    elif known := snapshot.objects.get(key):
        stored = {"metadata": msgspec.to_builtins(known.metadata)}
    if not stored:
        return obj
    metadata = part(stored, "metadata")
    kept = {name: metadata[name] for name in _KEPT_METADATA if name in metadata}
    found = {**obj, "metadata": {**kept, **obj["metadata"]}}
    if "status" in stored:
        found["status"] = stored["status"]
    if key.kind == NAMESPACE:  # other programs label it too, and an update keeps these labels
        found["metadata"]["labels"] = {**part(metadata, "labels"), **part(obj["metadata"], "labels")}
    if (key.group, key.kind) == (SERVICE.group, SERVICE.kind):
        spec = part(stored, "spec")
        found["spec"] = {**{name: spec[name] for name in _KEPT_OF_SERVICES if name in spec}, **part(obj, "spec")}
    return found


def _deletions(snapshot: Snapshot, query: PlanQuery) -> Mapping[Key, None]:
    """Return the deleted objects. Raises NotFound."""
    for key in query.deleted:
        if key not in snapshot.objects and key not in snapshot.mistakes:
            raise NotFound(f"{key} does not exist, so it can't be deleted; correct the name, or give -n NAMESPACE")
    return dict.fromkeys(query.deleted)


def _expected_slices(snapshot: Snapshot, applied: list[Object]) -> Iterator[Object]:
    """Yield an EndpointSlice for each new Service, with the pods that it selects: a controller would create it."""
    for obj in applied:
        key = key_of(obj)
        selector = part(part(obj, "spec"), "selector")
        if (key.group, key.kind) == (SERVICE.group, SERVICE.kind) and selector and key not in snapshot.objects:
            yield from _slices(snapshot, key, obj, selector)


def _slices(snapshot: Snapshot, key: Key, service: Object, selector: Mapping[str, Any]) -> Iterator[Object]:
    for name, pod in snapshot.pods.items():
        namespace, _, short = name.partition("/")
        address = pod.status.pod_ip
        if namespace == namespace_of(service) and address and selector.items() <= pod.metadata.labels.items():
            ports = part(service, "spec").get("ports") or ()
            yield {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": EndpointSlice.__name__,
                "metadata": {
                    "name": f"{key.name}-{short}",
                    "namespace": namespace,
                    "labels": {SERVICE_NAME_LABEL: key.name},
                },
                "addressType": "IPv6" if ":" in address else "IPv4",
                "endpoints": [
                    {"addresses": [address], "targetRef": {"kind": "Pod", "name": short, "namespace": namespace}}
                ],
                "ports": [{"name": port.get("name") or "", "port": _target(port)} for port in ports],
            }


def _target(port: Mapping[str, Any]) -> int:
    target = port.get("targetPort")
    return target if isinstance(target, int) else int(port["port"])
