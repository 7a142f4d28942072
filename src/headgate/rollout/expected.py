"""What the rollout controller would write for a Canary that is created or changed: for plans, live and offline (R108). Pure."""

from collections.abc import Mapping

from headgate.compiler.snapshot import Snapshot
from headgate.resources.decode import check_stored
from headgate.resources.mesh.canary.types import Canary
from headgate.resources.meta import Key, Object, service_name
from headgate.resources.registry import SERVICE, TRAFFIC_SPLIT, key_of
from headgate.rollout.owned_split import edit_of, is_owned, root_service, wanted_objects
from headgate.rollout.plan import RolloutPlan
from headgate.rollout.state import Facts, Pause, state_in
from headgate.rollout.transitions import following


def expected_objects(
    obj: Object, stored: Mapping[Key, Object], snapshot: Snapshot, domain: str
) -> Mapping[Key, Object | None]:
    """Return what a Canary makes of the objects that it owns, None for an object that it deletes.

    `stored` has the objects that it owns now or whose names it wants, and `snapshot` the Services and Canaries with the change.
    `domain` is the DNS domain of Services. A Canary that is invalid, or that may not have its root, makes nothing.
    """
    canary = check_stored(obj).value
    if not isinstance(canary, Canary):
        return {}
    metadata = {"uid": "placeholder", **obj["metadata"]}
    obj, key = {**obj, "metadata": metadata}, key_of(obj)
    root = service_name(canary.spec.service, key.namespace, domain)
    plan, split = RolloutPlan(canary), TRAFFIC_SPLIT.key(key.namespace, key.name)
    is_foreign = split in stored and not is_owned(stored[split], obj)
    if is_foreign or _belongs_to_another(key, canary, root, snapshot, domain):
        return {}
    edit = edit_of(stored[split]) if split in stored else None
    state = following(plan, state_in(obj), Facts(now=0.0, edit=edit, command=canary.spec.command))
    expected: dict[Key, Object | None] = {}
    if state.pause is not Pause.EDITED:
        expected |= {
            name: None for name, content in stored.items() if name.kind != SERVICE.kind and is_owned(content, obj)
        }
        expected |= {
            key_of(content): content for content in wanted_objects(obj, canary, plan.weights(state), plan.kind(state))
        }
    namespace, _, name = root.partition("/")
    if namespace == key.namespace and root not in snapshot.services:
        names = (service_name(backend.service, key.namespace, domain) for backend in canary.spec.backends)
        if backend := next((snapshot.services[name][1] for name in names if name in snapshot.services), None):
            expected[SERVICE.key(namespace, name)] = root_service(obj, name, backend)
    return expected


def _belongs_to_another(key: Key, canary: Canary, root: str, snapshot: Snapshot, domain: str) -> bool:
    """Return whether an older Canary has the root: a Canary without a creationTimestamp is the youngest."""
    age = canary.metadata.creation_timestamp or "9999", key
    return any(
        (other.metadata.creation_timestamp or "9999", name) < age
        for name, other in snapshot.of(Canary)
        if name != key and service_name(other.spec.service, name.namespace, domain) == root
    )
