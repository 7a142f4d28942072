"""Pods of an earlier start with another `--network`: their sidecars are of the wrong kind for their network."""

import contextlib

from headgate.admission.injection import EXPLICIT, TRANSPARENT, shares_network
from headgate.errors import NotFound
from headgate.objects.lifecycle import with_metadata
from headgate.objects.ports import Store
from headgate.resources.core.pod import ENDED
from headgate.resources.core.pod_metadata import sidecar_mode
from headgate.resources.meta import Object, part
from headgate.resources.registry import key_of
from headgate.standalone.address_pool import PodNetworking


async def delete_misplaced(store: Store, networking: PodNetworking) -> None:
    """Delete the pods with sidecars of the wrong kind, which can't be changed; their owners and files create them again.

    Call it before the runtime starts, which ends their processes. Pods that have ended stay.
    """
    for pod in (await store.list("", "Pod")).items:
        if part(pod, "status").get("phase") in ENDED or sidecar_mode(pod) in {"", _capture(pod, networking)}:
            continue
        with contextlib.suppress(NotFound):
            await store.update(with_metadata(pod, finalizers=None))
            await store.delete(key_of(pod))


def _capture(pod: Object, networking: PodNetworking) -> str:
    return TRANSPARENT if networking == "pod" and not shares_network(pod) else EXPLICIT
