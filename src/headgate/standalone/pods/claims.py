"""PersistentVolumeClaims: each has a directory in the state directory, which outlives pods and is removed with the claim.

Storage classes, sizes and PersistentVolumes have no effect: a claim is bound at once, and its size is not limited.
"""

import asyncio
import logging
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headgate.backoff import Backoff, until_done
from headgate.errors import Conflict, NotFound, StoreError
from headgate.objects.ports import Relist, Store, follow_all
from headgate.resources.core.pod_spec import Pod
from headgate.resources.meta import Key, Object, part, rows
from headgate.resources.registry import POD, key_of
from headgate.standalone.pods.volumes import make_directory

KIND = "PersistentVolumeClaim"
FINALIZER = "kubernetes.io/pvc-protection"  # Kubernetes' own: it keeps a claim while pods use it
_DIRECTORY = "volumes"
_STEADY_S = 60.0  # seconds after which the pauses after failures begin again

log = logging.getLogger(__name__)


async def directories(store: Store, state: Path, pod: Pod) -> Mapping[str, Path]:
    """Return the directory of each claim that a pod uses, by name; claims that do not exist or are being deleted are absent."""
    names = [volume.persistent_volume_claim.claim_name for volume in pod.spec.volumes if volume.persistent_volume_claim]
    result = {}
    _make_root(state)
    for name in names:
        try:
            claim = await store.get(Key("", KIND, pod.metadata.namespace, name))
        except NotFound:
            continue
        if not claim["metadata"].get("deletionTimestamp") or pod.metadata.deletion_timestamp:
            result[name] = make_directory(directory_of(state, claim))
    return result


def directory_of(state: Path, claim: Object) -> Path:
    """Return the directory of a claim, which a later claim with the same name does not get."""
    metadata = claim["metadata"]
    return state / _DIRECTORY / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"


class Claims:
    """Binds the claims of a store, and removes the directories of deleted claims that no pod uses any more."""

    def __init__(self, store: Store, state: Path) -> None:
        self._store = store
        self._state = state
        self._backoff = Backoff(steady_s=_STEADY_S)
        self._reported: set[Path] = set()

    async def run(self) -> None:
        """Follow claims and pods until canceled. A failure, such as a full disk, is logged and retried."""
        failure = "claims can't be bound or removed"
        await until_done(self._follow, failure, on=(StoreError, OSError), backoff=self._backoff)

    async def _follow(self) -> None:
        self._backoff.begin()
        async for step in follow_all(self._store, ((POD.group, POD.kind), ("", KIND))):
            if isinstance(step, Relist) or step.key.kind == POD.kind:
                if isinstance(step, Relist) or step.type != "ADDED":
                    await self._settle_all()
            elif step.type == "DELETED":
                await self._remove(step.object)
            else:
                await self._settle(step.object)

    async def _settle_all(self) -> None:
        _make_root(self._state)
        # Directories are listed before claims: a claim that is created in between has its directory later.
        directories = set((self._state / _DIRECTORY).iterdir())
        claims = (await self._store.list("", KIND)).items
        self._report_unclaimed(directories - {directory_of(self._state, claim) for claim in claims})
        for claim in claims:
            await self._settle(claim)

    def _report_unclaimed(self, directories: Iterable[Path]) -> None:
        """Log directories without a claim, once each. They stay, because a damaged store loses claims but not their files."""
        for path in directories:
            if path not in self._reported and path.exists():
                self._reported.add(path)
                log.warning("%s has the files of a claim that the store does not have; move or delete it", path)

    async def _settle(self, claim: Object) -> None:
        """Bind a claim; or, if it is deleted and no pod uses it, remove its directory and let it go."""
        finalizers = claim["metadata"].get("finalizers") or []
        try:
            if claim["metadata"].get("deletionTimestamp"):
                if FINALIZER in finalizers and not await self._is_used(claim):
                    await self._remove(claim)
                    rest = [name for name in finalizers if name != FINALIZER]
                    await self._store.update({**claim, "metadata": {**claim["metadata"], "finalizers": rest}})
                return
            if FINALIZER not in finalizers:
                metadata = {**claim["metadata"], "finalizers": [*finalizers, FINALIZER]}
                claim = await self._store.update({**claim, "metadata": metadata})
            if part(claim, "status").get("phase") != "Bound":
                await self._store.update({**claim, "status": _bound(claim)}, subresource="status")
        except (Conflict, NotFound):  # the next change settles it
            return

    async def _is_used(self, claim: Object) -> bool:
        key = key_of(claim)
        pods = (await self._store.list("", POD.kind, key.namespace)).items
        return any(key.name in _claim_names(pod) for pod in pods if not _has_ended(pod))

    async def _remove(self, claim: Object) -> None:
        await asyncio.to_thread(shutil.rmtree, directory_of(self._state, claim), ignore_errors=True)


def _make_root(state: Path) -> None:
    """Create the private directory of all claims, whose own directories every user may write to."""
    (state / _DIRECTORY).mkdir(mode=0o700, parents=True, exist_ok=True)


def _bound(claim: Object) -> dict[str, Any]:
    spec = part(claim, "spec")
    capacity = part(part(spec, "resources"), "requests")
    return {"phase": "Bound", "accessModes": spec.get("accessModes") or [], "capacity": dict(capacity)}


def _claim_names(pod: Object) -> Iterable[str]:
    for _, volume in rows(part(pod, "spec").get("volumes")):
        name = part(volume, "persistentVolumeClaim").get("claimName")
        if isinstance(name, str):
            yield name


def _has_ended(pod: Object) -> bool:
    return part(pod, "status").get("phase") in {"Succeeded", "Failed"}
