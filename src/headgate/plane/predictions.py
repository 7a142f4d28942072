"""Predict the objects after a change: with those that controllers make of the written ones, for plans and for warnings.

Each kind that makes other objects goes through the pure part of its controller, or through a function that tests compare
with the controller: Canaries, workloads and their pods, injection by Namespaces, TLSConfigs and Sidecars, the addresses of
Gateways, and the EndpointSlices of Services.
"""

from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Address
from typing import NamedTuple

from msgspec import structs

from headgate.admission.injection import Sidecars, explicit_sidecars
from headgate.compiler.gateway_api.gateways import own_gateways
from headgate.compiler.snapshot import Snapshot
from headgate.objects.ports import Reader
from headgate.plane.expected_slices import with_expected_slices
from headgate.plane.feed import with_objects
from headgate.plane.made_objects import Makes, made_objects
from headgate.plane.replaced_pods import Workloads, with_predicted_pods
from headgate.resources.core.pod import MeshPod
from headgate.resources.gateway_api.gateway import IP_ADDRESS, Gateway, GatewayAddress
from headgate.resources.meta import Key, Object
from headgate.resources.pod_templates import TEMPLATED_KINDS
from headgate.resources.registry import key_of

_RECREATING = frozenset(kind.kind for kind in TEMPLATED_KINDS if kind.replicated and kind.owns_pods)
"""Kinds of controllers that create a deleted pod again."""
_FIRST_GATEWAY = int(IPv4Address("198.51.100.1"))  # for documentation (RFC 5737), so no Gateway has it


class PredictedControllers(NamedTuple):
    """What the controllers of a host do: that of Canaries, and injection. The defaults are for tests without a host."""

    canaries: Makes = lambda *_: {}
    sidecars: Sidecars = explicit_sidecars("labelled")


class PredictedWrites(NamedTuple):
    """Objects that are written as they are stored then, workloads with pod templates, and objects that are deleted.

    With `orphan`, the objects that a deleted one owns stay: `kubectl delete --cascade=orphan`.
    """

    written: Sequence[Object] = ()
    deleted: Collection[Key] = ()
    workloads: Workloads = Workloads()
    orphan: bool = False


class Prediction(NamedTuple):
    """The objects after a change. `changed` has all objects that may differ, and `makers` have the written object of a made one.

    `on_creation` has pods (`namespace/name`) that differ only once they are created again.
    """

    snapshot: Snapshot
    changed: Collection[Key]
    makers: Mapping[Key, Key]
    on_creation: tuple[str, ...] = ()


async def predict(
    store: Reader, before: Snapshot, change: PredictedWrites, controllers: PredictedControllers, domain: str
) -> Prediction:
    """Return the objects after a change. `before` has the objects without it, and `domain` is the DNS domain of Services."""
    deleted = [key for key in change.deleted if not _is_created_again(before, key, change)]
    owners = () if change.orphan else deleted
    made = await made_objects(store, before, (change.written, deleted, owners), (controllers.canaries, domain))
    objects = {key: obj for key, (_, obj) in made.items()} | {key_of(obj): obj for obj in change.written}
    after = _with_addresses(before, with_objects(before, {**objects, **dict.fromkeys(deleted)}))
    changed = {*objects, *deleted}
    predicted = with_predicted_pods(before, after, change.workloads, changed, controllers.sidecars)
    makers = {key: maker for key, (maker, _) in made.items() if key not in change.deleted}
    makers |= predicted.makers
    snapshot, slices = with_expected_slices(before, predicted.snapshot, {*changed, *predicted.makers})
    makers |= {key: makers.get(cause, cause) for key, cause in slices.items() if key not in changed}
    return Prediction(snapshot, {*changed, *makers}, makers, predicted.on_creation)


def _is_created_again(before: Snapshot, key: Key, change: PredictedWrites) -> bool:
    """Return whether a deleted object is a pod that its controller creates again."""
    pod = before.objects.get(key)
    owners = pod.metadata.owner_references if isinstance(pod, MeshPod) else ()
    gone = {(deleted.kind, deleted.name) for deleted in (*change.deleted, *change.workloads.deleted)}
    return any(
        owner.controller and owner.kind in _RECREATING and (owner.kind, owner.name) not in gone for owner in owners
    )


def _with_addresses(before: Snapshot, after: Snapshot) -> Snapshot:
    """Return `after` with an address for each Gateway that gets one, as controllers assign it."""
    present = own_gateways(before)
    new = {key: gateway for key, gateway in own_gateways(after).items() if not gateway.address and key not in present}
    if not new:
        return after
    addressed: dict[Key, Gateway] = {}
    for key, gateway in new.items():
        requested = (
            address.value for address in gateway.spec.addresses if address.type == IP_ADDRESS and address.value
        )
        value = next(requested, "") or str(IPv4Address(_FIRST_GATEWAY + len(addressed)))
        status = structs.replace(gateway.status, addresses=(GatewayAddress(type=IP_ADDRESS, value=value),))
        addressed[key] = structs.replace(gateway, status=status)
    return Snapshot(after.revision, after.objects.edited(addressed), after.mistakes, fail_closed=after.fail_closed)
