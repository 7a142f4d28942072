"""Plan a change to the stored objects: compile them with the changed ones, and compare both results."""

import asyncio
import contextlib
from typing import NamedTuple

import msgspec
from msgspec import structs

from headgate.admission.chain import object_check
from headgate.compiler.snapshot import Snapshot
from headgate.errors import HeadgateError, NotFound
from headgate.manifests.apply import last_applied, merge, without_server_fields
from headgate.merge.managed_fields import managers_of
from headgate.objects.lifecycle import with_metadata
from headgate.objects.ports import Reader
from headgate.plan.planning import PlanSpec, PlanStatus, checked_plan
from headgate.plan.world import World
from headgate.plane.feed import GROUP_KINDS
from headgate.plane.live_state import LiveState
from headgate.plane.loop import other_rules
from headgate.plane.predictions import PredictedWrites, predict
from headgate.plane.replaced_pods import Workloads
from headgate.resources.audit_mode import is_audited
from headgate.resources.decode import Check
from headgate.resources.meta import Key, Object, annotations_of, part
from headgate.resources.pod_templates import template_path
from headgate.resources.registry import POD, SERVICE, key_of

PLAN_TIMEOUT_S = 20.0
_KEPT_METADATA = ("uid", "creationTimestamp", "generation", "resourceVersion", "ownerReferences")
_PAIRS = ("labels", "annotations")
_KEPT_OF_SERVICES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
"""Fields of a Service that the API server sets, and that an update without them does not change."""


_ONLY_LISTED = frozenset({("", "ConfigMap"), ("", "Secret")})
"""The kinds that a control plane on a cluster may list and watch, but not get: it needs only some of their objects."""


class InvalidChange(HeadgateError):
    """An object of a change has mistakes."""


async def planned(live_state: LiveState, spec: PlanSpec) -> PlanStatus:
    """Return the plan of a change.

    Raises InvalidChange, InvalidCheck, NotFound, and HeadgateError after a timeout.
    """
    hub = _hub_versions(spec, object_check(live_state.loop.settings))
    try:
        async with asyncio.timeout(PLAN_TIMEOUT_S):
            before = await live_state.wait_compiled()
            snapshot = live_state.feed.snapshot.get() or Snapshot()
            applied = [
                (obj, await _applied(live_state.store, snapshot, obj, merged=spec.applied)) for obj in hub.compiled
            ]
            written = [after for _, after in applied]
            deleted, workloads = await _deletions(live_state.store, snapshot, spec)
            change = PredictedWrites(written, deleted, Workloads(hub.workloads, workloads))
            predicted = await predict(
                live_state.store, snapshot, change, live_state.controllers, live_state.loop.settings.domain
            )
            after = predicted.snapshot
            compiled = await live_state.preview(after)
    except TimeoutError as error:
        raise HeadgateError(f"the plan is not ready after {PLAN_TIMEOUT_S:g} s; see the log of headgate") from error
    differing = {key for key in predicted.changed if snapshot.objects.get(key) != after.objects.get(key)}
    world = World(
        before,
        compiled,
        frozenset(differing),
        snapshots=(snapshot, after),
        makers=predicted.makers,
        deleted=spec.deleted,
    )
    result = await asyncio.to_thread(checked_plan, world, spec)
    return structs.replace(
        result,
        ignored=hub.ignored,
        on_creation=predicted.on_creation,
        kept_audits=tuple(key_of(obj) for obj, after in applied if is_audited(after) and not is_audited(obj)),
        revision_message=other_rules(live_state.loop),
    )


class _HubVersions(NamedTuple):
    """The objects of a spec in hub version: those that the compiler reads, and workloads; and the keys of all remaining ones."""

    compiled: list[Object]
    workloads: list[Object]
    ignored: tuple[Key, ...]


def _hub_versions(spec: PlanSpec, check: Check) -> _HubVersions:
    compiled, workloads, ignored = [], [], []
    for obj in spec.objects:
        checked = check(obj)
        if checked.hub is None:
            cause = checked.causes[0]
            raise InvalidChange(
                f"{obj.get('kind')} {part(obj, 'metadata').get('name')}: {cause.field}: {cause.message}"
            )
        key = key_of(checked.hub)
        if (key.group, key.kind) in GROUP_KINDS:
            compiled.append(checked.hub)
        elif template_path(checked.hub):
            workloads.append(checked.hub)
        else:
            ignored.append(key)
    return _HubVersions(compiled, workloads, tuple(ignored))


async def _applied(store: Reader, snapshot: Snapshot, obj: Object, *, merged: bool) -> Object:
    """Return an object as it is stored after `kubectl apply`, or after an update if it is not to be `merged`.

    A three-way merge keeps fields that the server or another client set, and that neither the manifest nor the last applied one has.
    Without a last applied manifest, that is labels, annotations and what only the server sets.
    """
    key = key_of(obj)
    stored: Object = {}
    if (key.group, key.kind) not in _ONLY_LISTED:
        with contextlib.suppress(NotFound):
            stored = await store.get(key)
    elif listed := snapshot.objects.get(key):
        stored = {"metadata": msgspec.to_builtins(listed.metadata)}
    if not stored:
        return obj
    metadata = part(stored, "metadata")
    if (key.group, key.kind) == (
        POD.group,
        POD.kind,
    ):  # an update keeps what injection added, and can't change containers
        return {**stored, "metadata": _merged_metadata(metadata, obj, {})}
    original = last_applied(stored) if merged else {}
    if original:
        annotated = with_metadata(without_server_fields(obj), annotations=annotations_of(obj))  # as kubectl writes them
        return merge(original, annotated, stored)
    applied = {**obj, "metadata": _merged_metadata(metadata, obj, _owned_by_appliers(stored) if merged else metadata)}
    if "status" in stored:
        applied["status"] = stored["status"]
    if (key.group, key.kind) == (SERVICE.group, SERVICE.kind):
        spec = part(stored, "spec")
        applied["spec"] = {**{name: spec[name] for name in _KEPT_OF_SERVICES if name in spec}, **part(obj, "spec")}
    return applied


def _merged_metadata(stored: Object, obj: Object, owned: Object) -> Object:
    """Return the metadata after an apply: labels and annotations that other clients wrote stay, as those in `owned` do not."""
    written = part(obj, "metadata")
    kept = {name: stored[name] for name in _KEPT_METADATA if name in stored}
    pairs = {name: merge(part(owned, name), part(written, name), part(stored, name)) for name in _PAIRS}
    return {**kept, **written, **{name: values for name, values in pairs.items() if values}}


def _owned_by_appliers(stored: Object) -> Object:
    """Return the labels and annotations that server-side apply wrote, which it removes when a manifest omits them."""
    paths = {
        path for owned in managers_of(stored).values() if owned.manager.operation == "Apply" for path in owned.paths
    }
    metadata = part(stored, "metadata")
    return {
        name: {
            key: text for key, text in part(metadata, name).items() if ("f:metadata", f"f:{name}", f"f:{key}") in paths
        }
        for name in _PAIRS
    }


async def _deletions(store: Reader, snapshot: Snapshot, spec: PlanSpec) -> tuple[list[Key], list[Key]]:
    """Return the deleted objects that the compiler reads, and the deleted workloads. Raises NotFound."""
    compiled, workloads = [], []
    for key in spec.deleted:
        if (key.group, key.kind) not in GROUP_KINDS:
            stored = await store.get(key)
            owners = part(stored, "metadata").get("ownerReferences") or ()
            if not any(owner.get("controller") for owner in owners):  # else its controller creates it again
                workloads.append(key)
        elif key in snapshot.objects or key in snapshot.mistakes:
            compiled.append(key)
        else:
            raise NotFound(f"{key} does not exist, so it can't be deleted; correct the name, or give -n NAMESPACE")
    return compiled, workloads
