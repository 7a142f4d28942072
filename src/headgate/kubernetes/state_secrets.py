"""Secrets with the state of the control plane, from which the next active replica continues (D28)."""

import asyncio
import base64
import zlib
from collections.abc import Sequence

from headgate.backoff import until_done
from headgate.errors import HeadgateError, NotFound, Unavailable
from headgate.kubernetes.client import Client
from headgate.kubernetes.names import NAME, NAMESPACE
from headgate.latest import Latest
from headgate.resources.meta import Object

CHUNK_BYTES = 700 << 10  # per Secret; the API server accepts at most 1 MiB
_PATH = f"/api/v1/namespaces/{NAMESPACE}/secrets"
_SERIES = "ab"


class StateSecrets:
    """Implements `objects.ports.StateStorage` by Secrets. Only the active replica saves a state.

    The Secret `headgate-state-NAME` contains the compressed state. A longer state continues in more Secrets, of which
    there are two series, `-a-N` and `-b-N`. Each save writes the series that the first Secret does not name, and the
    first Secret last, so an interrupted save leaves the old state.
    """

    interval_s = 10.0

    def __init__(self, client: Client, active: Latest[bool]) -> None:
        self._client = client
        self._active = active
        self._series: dict[str, str] = {}  # the series that the first Secret names, by the state's name

    async def load(self, name: str) -> bytes | None:
        """Return the saved state; None if there is none, or if a part is missing. Raises Unavailable if it is unreadable.

        Retries while the API server can't be reached, because without its state, the replica would count from 0.
        """
        chunks = await until_done(lambda: self._load(name), f"the state {name} can't be read", on=HeadgateError)
        return None if chunks is None else await asyncio.to_thread(_decompress, chunks)

    async def save(self, name: str, state: bytes) -> None:
        """Replace the saved state. Raises Unavailable if a write fails or this replica is not active anymore."""
        if not self._active.get():
            raise Unavailable("this replica is not active")
        packed = await asyncio.to_thread(zlib.compress, state, 1)
        series = _SERIES[self._series.get(name) == _SERIES[0]]
        chunks = [packed[start : start + CHUNK_BYTES] for start in range(0, len(packed), CHUNK_BYTES)]
        try:
            for number, chunk in enumerate(chunks[1:], 1):
                await self._write(f"{_secret(name)}-{series}-{number}", {"state": chunk})
            first = {"state": chunks[0], "series": series.encode(), "chunks": str(len(chunks)).encode()}
            await self._write(_secret(name), first)
        except HeadgateError as error:
            raise Unavailable(str(error)) from error
        self._series[name] = series

    async def _load(self, name: str) -> Sequence[bytes] | None:
        try:
            first = await self._read(_secret(name))
            self._series[name] = series = first["series"].decode()
            rest = [await self._read(f"{_secret(name)}-{series}-{number}") for number in range(1, int(first["chunks"]))]
        except NotFound:
            return None
        return [part["state"] for part in (first, *rest)]

    async def _read(self, name: str) -> dict[str, bytes]:
        data = (await self._client.get(f"{_PATH}/{name}")).get("data") or {}
        return {key: base64.b64decode(value) for key, value in data.items()}

    async def _write(self, name: str, data: dict[str, bytes]) -> None:
        secret: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/managed-by": NAME}},
            "type": "headgate.dev/state",
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }
        try:
            await self._client.put(f"{_PATH}/{name}", secret)
        except NotFound:
            await self._client.post(_PATH, secret)


def _secret(name: str) -> str:
    return f"headgate-state-{name}"


def _decompress(chunks: Sequence[bytes]) -> bytes:
    try:
        return zlib.decompress(b"".join(chunks))
    except zlib.error as error:
        raise Unavailable(f"the state is damaged: {error}") from error
