"""Pods of an earlier start with another `--network`: their sidecars are of the wrong kind for their network."""

import contextlib
import logging

from headgate.admission.injection import EXPLICIT, TRANSPARENT, shares_network
from headgate.errors import NotFound
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Store
from headgate.resources.core.pod import ENDED
from headgate.resources.core.pod_metadata import sidecar_mode
from headgate.resources.meta import Object, part
from headgate.resources.registry import key_of
from headgate.standalone.address_pool import PodNetworking
from headgate.standalone.pods.binding import without_finalizer

log = logging.getLogger(__name__)


async def delete_misplaced(store: Store, recorder: EventRecorder, networking: PodNetworking) -> None:
    """Delete the pods with sidecars of the wrong kind, which can't be changed; their controllers and files create them again.

    Pods without a controller are named in a warning and an Event each. Call it before the runtime starts, which ends their
    processes. Pods that have ended stay.
    """
    for pod in (await store.list("", "Pod")).items:
        if part(pod, "status").get("phase") in ENDED or sidecar_mode(pod) in {"", _capture(pod, networking)}:
            continue
        if not any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ()):
            key = key_of(pod)
            message = (
                f"its sidecar does not fit --network {networking}, so it is deleted, and no controller creates it again; unless a "
                "file in the manifests directory has it, apply it again"
            )
            log.warning("pod %s/%s: %s", key.namespace, key.name, message)
            await recorder.record(pod, type="Warning", reason="NetworkChanged", message=message)
        with contextlib.suppress(NotFound):
            await store.update(without_finalizer(pod))
            await store.delete(key_of(pod))


def _capture(pod: Object, networking: PodNetworking) -> str:
    return TRANSPARENT if networking == "pod" and not shares_network(pod) else EXPLICIT
