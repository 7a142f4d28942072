"""The public state of the certificate authority: the ConfigMap `headgate-ca` in `headgate-system`, without secrets.

`roots.pem` has the trusted roots, `status.json` a `CaStatus`. headgate never reads these two keys, so a changed ConfigMap
can't make proxies trust other roots. It reads the annotation `headgate.dev/rotate-ca`: a new text, from `headgate ca
rotate` or `kubectl annotate`, requests a rotation.
"""

import asyncio
from typing import Any

import msgspec
from cryptography import x509

from headgate.errors import StoreError
from headgate.identity.certificates import fingerprint, read_certificates, validity
from headgate.identity.credentials import Credentials, Schedule
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.issuers import Issuer
from headgate.identity.keys import ensure_namespace
from headgate.identity.rotation import Rotation
from headgate.latest import Latest, until, wait_for_any
from headgate.objects.ports import Relist, Store, follow
from headgate.resources.authority_status import CONFIG_MAP, ROOTS, ROTATE, STATUS, CaStatus, RootStatus, RotationPhase
from headgate.resources.meta import Object, annotations_of, timestamp
from headgate.resources.registry import key_of

MANAGER = "headgate"
PAUSE_S = 1.0
"""The number of seconds between two writes. Changes in between are written together."""
MOST_NAMES = 20


class CaStatusPublisher:
    """Publishes the state in the ConfigMap, and passes rotation requests to `rotation`.

    `rotation` is None if the authority is not headgate's own.
    """

    def __init__(
        self,
        store: Store,
        issuer: Issuer,
        credentials: Credentials,
        schedule: Schedule,
        rotation: Rotation | None = None,
    ) -> None:
        self._store = store
        self._issuer = issuer
        self._credentials = credentials
        self._schedule = schedule
        self._rotation = rotation
        self._deletions: Latest[int] = Latest(0)

    async def run(self) -> None:
        """Write and watch the ConfigMap until canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_changes(), name="status of the authority")
            tasks.create_task(self._follow(), name="requests to rotate")

    async def _write_changes(self) -> None:
        cells: list[Latest[Any]] = [self._issuer.roots, self._issuer.fault, self._credentials.current]
        cells += [self._credentials.faults, self._deletions, *([self._rotation.progress] if self._rotation else [])]
        # Don't overwrite an older ConfigMap before the keys are read: `ca roots` is never empty, and no rotation seems to have ended.
        await until(lambda: self._is_loaded() or bool(self._issuer.fault.get()), *cells)
        while True:
            changes = [cell.next_change() for cell in cells]  # includes changes during the write
            if await self._write():
                await wait_for_any(*(event.wait() for event in changes))
            await self._schedule.sleep(PAUSE_S)

    def _is_loaded(self) -> bool:
        rotation = self._rotation
        return bool(self._issuer.roots.get()) and not (
            rotation and rotation.progress.get().phase is RotationPhase.UNKNOWN
        )

    async def _write(self) -> bool:
        """Write the ConfigMap; return whether it succeeded."""
        data = {ROOTS: self._issuer.roots.get(), STATUS: msgspec.json.encode(self.status()).decode()}
        try:
            await ensure_namespace(self._store, CONFIG_MAP.namespace)
            await self._store.apply(_config_map(data), manager=MANAGER)
        except StoreError:
            return False
        return True

    def status(self) -> CaStatus:
        """Return the current state of the authority."""
        progress = self._rotation.progress.get() if self._rotation else None
        faults = self._credentials.faults.get()
        waiting = progress.waiting if progress else ()
        pem, signer = self._issuer.roots.get(), self._issuer.signer.get()
        roots = read_certificates(pem, "the authority") if pem else ()
        return CaStatus(
            phase=progress.phase if progress else "",
            waits=len(waiting),
            waiting=waiting[:MOST_NAMES],
            distributing=progress.distributing if progress else False,
            answered=_answered(self._issuer),
            fault=self._issuer.fault.get() or (progress.fault if progress else ""),
            certificates=len(self._credentials.current.get()),
            faulty=len(faults),
            faults=dict(sorted(faults.items())[:MOST_NAMES]),
            roots=tuple(_root_status(certificate, signer) for certificate in roots),
        )

    async def _follow(self) -> None:
        """Watch the ConfigMap: pass its annotation to the rotation, and report its deletion."""
        async for step in follow(self._store, CONFIG_MAP.group, CONFIG_MAP.kind, CONFIG_MAP.namespace):
            if isinstance(step, Relist):  # if the ConfigMap is missing, `_write_changes` creates it
                for obj in step.items:
                    if key_of(obj) == CONFIG_MAP:
                        self._read(obj)
            elif step.key == CONFIG_MAP and step.type == "DELETED":
                self._deletions.set(self._deletions.get() + 1)
            elif step.key == CONFIG_MAP:
                self._read(step.object)

    def _read(self, obj: Object) -> None:
        request = annotations_of(obj).get(ROTATE, "")
        if self._rotation and isinstance(request, str):
            self._rotation.request.set(request)


def _answered(issuer: Issuer) -> str:
    stored = issuer.stored.get() if isinstance(issuer, EmbeddedIssuer) else None
    return stored.answered if stored else ""


def _root_status(certificate: x509.Certificate, signer: str) -> RootStatus:
    begin, end = map(timestamp, validity(certificate))
    own = fingerprint(certificate)
    subject = certificate.subject.rfc4514_string()
    return RootStatus(fingerprint=own, subject=subject, not_before=begin, not_after=end, signs=own == signer)


def _config_map(data: dict[str, str]) -> Object:
    metadata = {"name": CONFIG_MAP.name, "namespace": CONFIG_MAP.namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
