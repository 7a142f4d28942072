"""The authority as everybody may see it: the ConfigMap `headgate-ca` in `headgate-system`, which holds no secret.

`roots.pem` is what the mesh believes, `status.json` a `CaStatus`. Both are written here and never read: who may change the
ConfigMap can't make proxies believe anything. Its annotation `headgate.dev/rotate-ca` is read: a new text asks for a
rotation, by `headgate ca rotate` or `kubectl annotate`.
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
from headgate.model.identities import SYSTEM_NAMESPACE
from headgate.objects.ports import Relist, Store, follow
from headgate.resources.meta import Input, Key, Object, timestamp
from headgate.resources.registry import key_of

CONFIG_MAP = Key("", "ConfigMap", SYSTEM_NAMESPACE, "headgate-ca")
ROTATE = "headgate.dev/rotate-ca"
ROOTS, STATUS = "roots.pem", "status.json"
MANAGER = "headgate"
PAUSE_S = 1.0
"""Between two writes: what happens meanwhile is told together."""
MOST_NAMES = 20


class Root(Input, frozen=True, kw_only=True):
    """A root that is believed; `signs` says which one signs. Times are RFC 3339."""

    fingerprint: str
    subject: str
    not_before: str
    not_after: str
    signs: bool = False


class CaStatus(Input, frozen=True, kw_only=True):
    """The authority's state. `phase` is empty when the authority is not headgate's own, and so are rotations.

    `waiting` and `faults` (by node id) name the first twenty; `waits` and `faulty` count all.
    """

    phase: str = ""
    waits: int = 0
    waiting: tuple[str, ...] = ()
    answered: str = ""
    fault: str = ""
    certificates: int = 0
    faulty: int = 0
    faults: dict[str, str] = msgspec.field(default_factory=dict)
    roots: tuple[Root, ...] = ()


class CaStatusPublisher:
    """Keeps the ConfigMap up to date, and passes on what it asks for; `rotation` is there when the authority is headgate's."""

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
        self._lost: Latest[int] = Latest(0)

    async def run(self) -> None:
        """Write and read, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_changes(), name="notice of the authority")
            tasks.create_task(self._follow(), name="requests to rotate")

    async def _write_changes(self) -> None:
        cells: list[Latest[Any]] = [self._issuer.roots, self._issuer.fault, self._credentials.current]
        cells += [self._credentials.faults, self._lost, *([self._rotation.progress] if self._rotation else [])]
        # What an earlier headgate wrote stays until there is something to say: `ca roots` is never empty for a moment.
        await until(lambda: bool(self._issuer.roots.get() or self._issuer.fault.get()), *cells)
        while True:
            news = [cell.next_change() for cell in cells]  # before the write: what changes meanwhile is not in it
            if await self._write():
                await wait_for_any(*(event.wait() for event in news))
            await self._schedule.sleep(PAUSE_S)

    async def _write(self) -> bool:
        """Write the ConfigMap; false when it has to be tried again."""
        data = {ROOTS: self._issuer.roots.get(), STATUS: msgspec.json.encode(self.notice()).decode()}
        try:
            await ensure_namespace(self._store, CONFIG_MAP.namespace)
            await self._store.apply(_config_map(data), manager=MANAGER)
        except StoreError:
            return False
        return True

    def notice(self) -> CaStatus:
        """Return the authority's state as it is now."""
        progress = self._rotation.progress.get() if self._rotation else None
        faults = self._credentials.faults.get()
        waiting = progress.waiting if progress else ()
        pem, signer = self._issuer.roots.get(), self._issuer.signer.get()
        roots = read_certificates(pem, "the authority") if pem else ()
        return CaStatus(
            phase=progress.phase if progress else "",
            waits=len(waiting),
            waiting=waiting[:MOST_NAMES],
            answered=_answered(self._issuer),
            fault=self._issuer.fault.get() or (progress.fault if progress else ""),
            certificates=len(self._credentials.current.get()),
            faulty=len(faults),
            faults=dict(sorted(faults.items())[:MOST_NAMES]),
            roots=tuple(_root(certificate, signer) for certificate in roots),
        )

    async def _follow(self) -> None:
        """Read the annotation, and every change of it."""
        async for step in follow(self._store, CONFIG_MAP.group, CONFIG_MAP.kind, CONFIG_MAP.namespace):
            if isinstance(step, Relist):  # without the ConfigMap it is about to be written
                for obj in step.items:
                    if key_of(obj) == CONFIG_MAP:
                        self._read(obj)
            elif step.key == CONFIG_MAP and step.type == "DELETED":
                self._lost.set(self._lost.get() + 1)
            elif step.key == CONFIG_MAP:
                self._read(step.object)

    def _read(self, obj: Object) -> None:
        asked = (obj["metadata"].get("annotations") or {}).get(ROTATE, "")
        if self._rotation and isinstance(asked, str):
            self._rotation.asked.set(asked)


def _answered(issuer: Issuer) -> str:
    kept = issuer.stored.get() if isinstance(issuer, EmbeddedIssuer) else None
    return kept.answered if kept else ""


def _root(certificate: x509.Certificate, signer: str) -> Root:
    begin, end = map(timestamp, validity(certificate))
    own = fingerprint(certificate)
    subject = certificate.subject.rfc4514_string()
    return Root(fingerprint=own, subject=subject, not_before=begin, not_after=end, signs=own == signer)


def _config_map(data: dict[str, str]) -> Object:
    metadata = {"name": CONFIG_MAP.name, "namespace": CONFIG_MAP.namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
