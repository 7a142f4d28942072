"""A certificate issuer that uses cert-manager: it creates a CertificateRequest (cert-manager.io/v1) for each certificate.

headgate makes the key and sends a signing request; cert-manager approves and signs it. headgate deletes each request after
the answer, so that requests do not pile up.

The user can give a file with the root certificates. To replace the root without failed requests, the user adds the new root
to the file first. Without a file, headgate trusts the roots that cert-manager returns with each certificate (`status.ca`), for
the lifetime of a certificate.
"""

import asyncio
import base64
import binascii
import contextlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from cryptography import x509

from headgate.errors import Invalid, NotFound, StoreError
from headgate.file_watch import file_changes
from headgate.identity.authority import Leaf, check_domain, signing_request, subject_alt_name
from headgate.identity.certificates import (
    check_chain,
    check_validity,
    read_certificates,
    read_key,
    to_base64,
    to_pem,
)
from headgate.identity.issuers import CertificateSpec, Clock, IssueError
from headgate.kinds import KindNames
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.objects.ports import Change, Store, follow
from headgate.options import IssuerRef
from headgate.resources.kind import Kind
from headgate.resources.meta import Object
from headgate.resources.registry import key_of

CERTIFICATE_REQUEST = Kind(
    KindNames("cert-manager.io", "CertificateRequest", "certificaterequests", ("cr", "crs")), status=True
)
USAGES = ("digital signature", "client auth", "server auth")
_FAILED = frozenset({"Failed", "Denied"})


class CertManagerIssuer:
    """An `issuers.Issuer` that uses cert-manager. `trusted` is the file of roots, if the user gives one."""

    def __init__(
        self, store: Store, ref: IssuerRef, trust_domain: str, *, clock: Clock, trusted: Path | None = None
    ) -> None:
        self.roots: Latest[str] = Latest("")
        self.signer: Latest[str] = Latest("")  # stays empty: cert-manager does not report a new signer
        self.fault: Latest[str] = Latest("")
        self._store = store
        self._ref = ref
        self._trust_domain = trust_domain
        self._clock = clock
        self._trusted = trusted
        self._learned: dict[
            x509.Certificate, float
        ] = {}  # roots from answers, with the time (epoch seconds) until which they are trusted

    async def issue(self, spec: CertificateSpec, lifetime: timedelta) -> Credential:
        """Return a new key and its certificate, which cert-manager signed. Raises IssueError."""
        check_domain(spec, self._trust_domain)
        requested = await asyncio.to_thread(signing_request, spec)
        try:
            if self._trusted is not None and not self.roots.get():
                await self._read(self._trusted)
            status = await self._answer(requested.chain, lifetime)
        except StoreError as error:
            raise IssueError(f"could not request a certificate from {self._ref}: {error}") from error
        chain = self._accept(requested, spec, status, lifetime)
        return Credential(chain=chain, key=requested.key, roots=self.roots.get(), issued=self._clock())

    async def run(self) -> None:
        """Read the file of roots again whenever it changes; return at once if there is none."""
        if self._trusted is None:
            return
        async for _ in file_changes([self._trusted]):
            with contextlib.suppress(IssueError):
                await self._read(self._trusted)

    async def _read(self, trusted: Path) -> None:
        try:
            self.roots.set(to_pem(await asyncio.to_thread(_roots_in, trusted)))
        except IssueError as error:
            self.fault.set(str(error))
            raise
        self.fault.set("")

    async def _answer(self, signing_request: str, lifetime: timedelta) -> Mapping[str, Any]:
        """Create a CertificateRequest, wait for the certificate, and return the status. Raises IssueError, StoreError."""
        try:
            created = await self._store.create(_request(self._ref, signing_request, lifetime))
        except (NotFound, Invalid) as error:
            raise IssueError(
                f"a CertificateRequest can't be created ({error}); install cert-manager, or choose another authority"
            ) from error
        try:
            async with asyncio.timeout(self._ref.patience.total_seconds()):
                return await self._signed(created)
        except TimeoutError:
            raise IssueError(
                f"{self._ref} has not answered within {self._ref.patience.total_seconds():g} s; look at"
                f" `kubectl describe {self._ref.kind.lower()} {self._ref.name}`, and at the approver of requests"
            ) from None
        finally:
            with contextlib.suppress(StoreError):
                await self._store.delete(key_of(created))

    async def _signed(self, created: Object) -> Mapping[str, Any]:
        """Watch a request until it is signed; return its status. Raises IssueError if it is rejected or deleted."""
        key = key_of(created)
        async with contextlib.aclosing(follow(self._store, key.group, key.kind, key.namespace)) as steps:
            async for step in steps:
                if isinstance(step, Change) and step.key != key:
                    continue
                try:
                    current = await self._store.get(key)
                except NotFound:
                    message = f"the request for a certificate by {self._ref} was deleted before it was answered"
                    raise IssueError(message) from None
                if status := _outcome(current, self._ref):
                    return status
        raise AssertionError("unreachable: a watch does not end")

    def _accept(self, requested: Leaf, spec: CertificateSpec, status: Mapping[str, Any], lifetime: timedelta) -> str:
        """Verify the signed certificate and return its chain as PEM. Raises IssueError if it is not as requested."""
        place = f"the answer of {self._ref}"
        chain = read_certificates(_text(status.get("certificate"), place), place)
        _check_answer(chain[0], requested, spec, place)
        check_validity(chain, self._clock(), place)
        if self._trusted is not None:
            check_chain(chain, read_certificates(self.roots.get(), str(self._trusted)), place)
        else:
            self._learn(chain, status, lifetime)
        return to_pem(chain)

    def _learn(self, chain: Sequence[x509.Certificate], status: Mapping[str, Any], lifetime: timedelta) -> None:
        """Trust the roots of an answer for `lifetime` from now. Raises IssueError."""
        place, now = f"the answer of {self._ref}", self._clock()
        if not status.get("ca"):
            raise IssueError(f"{place} names no root (status.ca); give the roots as a file")
        named = read_certificates(_text(status["ca"], place), place)
        check_chain(chain, named, place)
        for root in named:  # an earlier answer with this root may have had a longer lifetime
            self._learned[root] = max(self._learned.get(root, 0.0), now + lifetime.total_seconds())
        self._learned = {root: until for root, until in self._learned.items() if until > now}
        self.roots.set(to_pem(self._learned))


def _request(ref: IssuerRef, signing_request: str, lifetime: timedelta) -> Object:
    return {
        "apiVersion": CERTIFICATE_REQUEST.hub,
        "kind": CERTIFICATE_REQUEST.kind,
        "metadata": {
            "generateName": "headgate-",
            "namespace": ref.namespace,
            "labels": {"app.kubernetes.io/managed-by": "headgate"},
        },
        "spec": {
            "request": to_base64(signing_request),
            "duration": f"{int(lifetime.total_seconds())}s",
            "usages": list(USAGES),
            "issuerRef": {"name": ref.name, "kind": ref.kind, "group": ref.group},
        },
    }


def _outcome(obj: Object, ref: IssuerRef) -> Mapping[str, Any] | None:
    """Return the status of a signed request; None while it is pending. Raises IssueError if it was rejected."""
    status: Mapping[str, Any] = obj.get("status") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    ready = conditions.get("Ready", {})
    for name in ("Denied", "InvalidRequest"):
        if conditions.get(name, {}).get("status") == "True":
            raise _refused(ref, name, conditions[name])
    if ready.get("status") == "False" and ready.get("reason") in _FAILED:
        raise _refused(ref, str(ready["reason"]), ready)
    return status if ready.get("status") == "True" and status.get("certificate") else None


def _refused(ref: IssuerRef, how: str, condition: Mapping[str, Any]) -> IssueError:
    hint = {
        "Denied": "let the policy that approves requests allow headgate's",
        "InvalidRequest": "see what the issuer allows",
        "Failed": f"look at `kubectl describe {ref.kind.lower()} {ref.name}`",
    }[how]
    return IssueError(f"{ref} has not signed ({how}: {condition.get('message') or condition.get('reason')}); {hint}")


def _check_answer(leaf: x509.Certificate, requested: Leaf, spec: CertificateSpec, place: str) -> None:
    """Raise IssueError unless a certificate is for the requested key and has the requested names."""
    if leaf.public_key() != read_key(requested.key, place).public_key():
        raise IssueError(f"{place} is a certificate for another key; its issuer must keep the key of the request")
    try:
        names = set(leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        names = set()
    missing = [str(name.value) for name in subject_alt_name(spec) if name not in names]
    if missing:
        raise IssueError(
            f"{place} lacks the names {', '.join(missing)}; configure the issuer to copy the names of the request"
        )


def _text(value: object, place: str) -> str:
    try:
        return base64.b64decode(str(value), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise IssueError(f"{place} has a certificate that is not base64-encoded PEM") from None


def _roots_in(path: Path) -> tuple[x509.Certificate, ...]:
    try:
        return read_certificates(path.read_text("ascii"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise IssueError(
            f"the root certificates in {path} can't be read ({error}); correct the path or the file"
        ) from error
