"""Who is let in: a stream's first request and its token become a known proxy, or a status that says why not."""

import logging
from typing import NamedTuple

import grpc

from headgate.errors import ProxyError
from headgate.xds.fleet import Fleet, Proxy
from headgate.xds.proofs import Proofs, Refused, bearer, shown
from headgate.xds.session import Request, read_request

MOST_REFUSALS = 1000  # that are remembered so that each is logged once
LONGEST_MESSAGE = 1000  # characters of a status; gRPC limits the headers that it travels in
FOREVER = float("inf")

log = logging.getLogger(__name__)


class TurnedAway(ProxyError):
    """A stream that is not served: `code` and the message are its status."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message[:LONGEST_MESSAGE])
        self.code = code


class Admitted(NamedTuple):
    """A proxy that has proven who it is, what it asked for first, and when (seconds since the epoch) its proof ends."""

    proxy: Proxy
    request: Request
    ends: float


class Gate:
    """Lets proxies in. Without `proofs` every one is who it says: only for a socket that nobody else can open."""

    def __init__(self, fleet: Fleet, proofs: Proofs | None) -> None:
        self._fleet = fleet
        self._proofs = proofs
        self._told: dict[tuple[str, str], None] = {}  # refusals in the log already, oldest first

    async def admit(self, first: bytes, authorization: list[str]) -> Admitted:
        """Return who is there, by the first request and the `authorization` headers. Raises TurnedAway."""
        try:
            node_id, request = read_request(first)
        except ProxyError as error:
            raise TurnedAway(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
        ends = await self.prove(node_id, authorization)
        proxy = self._fleet.proxies.get(node_id)  # looked up after the proof: strangers don't learn who is known
        if proxy is None:
            message = f"headgate does not know the proxy {shown(node_id)}: there is no such pod with a sidecar"
            raise self._refusal(node_id, grpc.StatusCode.NOT_FOUND, message)
        for told in [told for told in self._told if told[0] == node_id]:
            del self._told[told]  # the next time it is news again
        return Admitted(proxy, request, ends)

    async def prove(self, node_id: str, authorization: list[str]) -> float:
        """Return when the proof ends that this is who says so, known or not. Raises TurnedAway."""
        if self._proofs is None:
            return FOREVER
        try:
            return await self._proofs.check(node_id, bearer(authorization))
        except Refused as refused:
            raise self._refusal(node_id, grpc.StatusCode.UNAUTHENTICATED, str(refused)) from refused
        except ProxyError as error:
            raise self._refusal(node_id, grpc.StatusCode.UNAVAILABLE, str(error)) from error

    def _refusal(self, node_id: str, code: grpc.StatusCode, message: str) -> TurnedAway:
        """Return the refusal, and log it once for each proxy and reason: proxies come back every few seconds."""
        told = shown(node_id), message[:LONGEST_MESSAGE]
        if told not in self._told:
            log.warning("proxy %s is refused: %s", *told)
        self._told.pop(told, None)
        self._told[told] = None
        if len(self._told) > MOST_REFUSALS:
            del self._told[next(iter(self._told))]
        return TurnedAway(code, message)
