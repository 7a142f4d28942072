"""An authority in the user's files: a root with its key, or an intermediate with its chain.

The files are read again when they change. docs/tasks/certificates.md describes how a user replaces the root without failed requests.
"""

import asyncio
import contextlib
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from headgate.file_watch import file_changes
from headgate.identity.authority import Authority, Signer, SigningIssuer, make_signer
from headgate.identity.certificates import (
    check_chain,
    check_is_authority,
    check_permits,
    describe,
    is_root,
    read_certificates,
    to_pem,
)
from headgate.identity.issuers import Clock, IssueError
from headgate.model.identities import PrivateText


class Files(NamedTuple):
    """Paths of PEM files. `certificate` contains the signing certificate, then its chain.

    Without `roots`, all roots in the file `certificate` are trusted.
    """

    certificate: Path
    key: Path
    roots: Path | None = None


class PemIssuer(SigningIssuer):
    """Signs with an authority that is read from files."""

    def __init__(self, files: Files, trust_domain: str, *, clock: Clock) -> None:
        super().__init__(trust_domain, clock)
        self._files = files
        self._signer: Signer | None = None

    async def run(self) -> None:
        """Read the files whenever they change. Unusable files are not used to sign: `fault` has the reason."""
        async for _ in file_changes(path for path in self._files if path is not None):
            with contextlib.suppress(IssueError):
                await self._load()

    async def _ready(self) -> Signer:
        return self._signer or await self._load()

    async def _load(self) -> Signer:
        try:
            signer, roots = await asyncio.to_thread(_read, self._files)
            check_permits(signer.chain, self._trust_domain, signer.source)
        except IssueError as error:
            self._signer = None
            self.fault.set(str(error))
            raise
        self._signer = signer
        self._activate(signer, to_pem(roots))
        return signer


def _read(files: Files) -> tuple[Signer, Sequence[x509.Certificate]]:
    _check_private(files.key)
    authority = Authority(certificate=_text(files.certificate), key=PrivateText(_text(files.key)))
    signer = make_signer(authority, f"{files.certificate} and {files.key}")
    source = str(files.certificate)
    chain = _up_to_root(signer.chain)
    for certificate in chain[1:]:
        check_is_authority(certificate, source)
    if files.roots:
        roots = read_certificates(_text(files.roots), str(files.roots))
    else:
        roots = tuple(certificate for certificate in signer.chain if is_root(certificate))
    if not roots:
        raise IssueError(
            f"the chain in {source} ends with {describe(chain[-1])}, which is not a root certificate; append the root certificate to the file"
        )
    check_chain(chain, roots, source)
    return signer._replace(chain=chain), roots


def _up_to_root(chain: tuple[x509.Certificate, ...]) -> tuple[x509.Certificate, ...]:
    """Return the certificates up to the first root; the certificates after it are further trusted roots."""
    ends = [number for number, certificate in enumerate(chain, 1) if is_root(certificate)]
    return chain[: ends[0]] if ends else chain


def _check_private(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise _unreadable(path, error) from error
    if mode & stat.S_IRWXO:
        raise IssueError(
            f"every user can read the key {path} (mode {mode & 0o777:04o}); run: chmod o= {path} (for a mounted Secret, set"
            " defaultMode to 0400)"
        )


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except OSError as error:
        raise _unreadable(path, error) from error
    except UnicodeDecodeError:
        raise IssueError(
            f"{path} is not PEM text; convert it (openssl x509 -inform der, openssl pkey -inform der)"
        ) from None


def _unreadable(path: Path, error: OSError) -> IssueError:
    return IssueError(f"{path} can't be read: {error.strerror}; correct the path, or the permissions of the file")
