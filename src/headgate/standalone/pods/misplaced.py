"""Pods of an earlier start that do not fit the network: sidecars of the wrong kind, and programs in a network that is gone."""

import contextlib
import logging

from headgate.admission.injection import EXPLICIT, TRANSPARENT, shares_network
from headgate.errors import NotFound
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Store
from headgate.resources.core.pod import ENDED
from headgate.resources.core.pod_metadata import EXTERNAL, PROCESS, sidecar_mode
from headgate.resources.meta import Object, part
from headgate.resources.registry import key_of
from headgate.standalone.address_pool import PodNetworking
from headgate.standalone.pods.binding import without_finalizer

_WRONG_SIDECAR = (
    "its sidecar does not fit --network {}, so it is deleted, and no controller creates it again; unless a file in the manifests "
    "directory has it, apply it again"
)
_CUT_OFF = (
    "its program is in the network of an earlier start, where nothing reaches it, so the pod is deleted, which ends the program; "
    "run it again (headgate run)"
)

log = logging.getLogger(__name__)


async def delete_misplaced(
    store: Store, recorder: EventRecorder, networking: PodNetworking, *, is_new_node: bool = False
) -> None:
    """Delete the pods that do not fit the network, which can't be changed; their controllers and files create them again.

    Their sidecars are of the wrong kind, or they are pods of `headgate run` whose programs are in another network: with `is_new_node`,
    the network in which programs of `headgate run` are is new. `headgate run` ends its program when the pod is deleted.

    Pods without a controller are named in a warning and an Event each. Call it before the runtime starts, which ends their
    processes. Pods that have ended stay.
    """
    for pod in (await store.list("", "Pod")).items:
        is_cut_off = _is_external(pod) and (is_new_node or _had_own_network(pod, networking))
        fits = sidecar_mode(pod) in {"", _capture(pod, networking)} and not is_cut_off
        if fits or part(pod, "status").get("phase") in ENDED:
            continue
        if not any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ()):
            key = key_of(pod)
            message = _CUT_OFF if is_cut_off else _WRONG_SIDECAR.format(networking)
            log.warning("pod %s/%s: %s", key.namespace, key.name, message)
            await recorder.record(pod, type="Warning", reason="NetworkChanged", message=message)
        with contextlib.suppress(NotFound):
            await store.update(without_finalizer(pod))
            await store.delete(key_of(pod))


def _is_external(pod: Object) -> bool:
    return part(part(pod, "metadata"), "annotations").get(PROCESS) == EXTERNAL


def _had_own_network(pod: Object, networking: PodNetworking) -> bool:
    return networking == "host" and str(part(pod, "status").get("podIP", "")).startswith("10.")


def _capture(pod: Object, networking: PodNetworking) -> str:
    return TRANSPARENT if networking == "pod" and not shares_network(pod) else EXPLICIT
