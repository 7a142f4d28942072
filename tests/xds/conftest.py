"""A shorthand for streams: `CDS a=1 b=2 -c` is a response with two clusters, by name and version, and one removal."""

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Self

import pytest

from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET, Encoded, TypeUrl
from headgate.xds.messages import DeltaRequest
from headgate.xds.session import Session
from headgate.xds.subscription import Response

TYPES = {"CDS": CLUSTER, "EDS": ENDPOINTS, "SDS": SECRET, "LDS": LISTENER, "RDS": ROUTES, "SRDS": SCOPES}
SHORT = {type_url: short for short, type_url in TYPES.items()}
RESOURCE = re.compile(r"(?P<name>[\w-]+)=(?P<digest>\w+)(?:\((?P<needs>[\w,-]*)\))?(?:\*(?P<size>\d+))?")


def encoded(found: re.Match[str]) -> Encoded:
    """Return the resource of a match of RESOURCE."""
    needs = frozenset((found["needs"] or "").split(",")) - {""}
    return Encoded(b"x" * int(found["size"] or 1), found["digest"], needs)


def config(*lines: str) -> dict[TypeUrl, dict[str, Encoded]]:
    """Parse a configuration, one line for each type: `RDS r=1(a,b)` is a route that names the clusters a and b."""
    out: dict[TypeUrl, dict[str, Encoded]] = {type_url: {} for type_url in TYPES.values()}
    for line in lines:
        short, _, rest = line.partition(" ")
        out[TYPES[short]] |= {found["name"]: encoded(found) for found in RESOURCE.finditer(rest)}
    return out


def written(response: Response) -> str:
    """Return a response in shorthand."""
    resources = [f"{name}={item.digest}" for name, item in response.resources]
    return " ".join([SHORT[response.type_url], *resources, *(f"-{name}" for name in response.removed)])


class Stream:
    """Drives a session; each call returns the responses that follow, in shorthand."""

    def __init__(self, *lines: str, removal_delay: float = 0.0) -> None:
        self.now = 0.0
        self.session = Session(removal_delay, lambda: self.now)
        self.unanswered: defaultdict[TypeUrl, list[str]] = defaultdict(list)
        self.rejected: list[str] = []
        self.session.set_config(config(*lines))

    def _responses(self) -> list[str]:
        responses = self.session.next_responses()
        for response in responses:
            self.unanswered[response.type_url].append(response.nonce)
        return [written(response) for response in responses]

    def set_config(self, *lines: str) -> list[str]:
        self.session.set_config(config(*lines))
        return self._responses()

    def request(self, short: str, names: str = "", *, unsubscribe: str = "", initial: str = "") -> list[str]:
        """Change the subscription; `initial` has the versions that the proxy reports after a reconnect, as `a=1`."""
        versions = {found["name"]: found["digest"] for found in RESOURCE.finditer(initial)}
        return self._receive(DeltaRequest(TYPES[short], tuple(names.split()), tuple(unsubscribe.split()), versions))

    def ack(self, short: str, names: str = "", *, unsubscribe: str = "", at: int = 0) -> list[str]:
        nonce = self.unanswered[TYPES[short]].pop(at)
        return self._receive(DeltaRequest(TYPES[short], tuple(names.split()), tuple(unsubscribe.split()), {}, nonce))

    def nack(self, short: str, error: str = "bad", *, at: int = 0) -> list[str]:
        nonce = self.unanswered[TYPES[short]].pop(at)
        return self._receive(DeltaRequest(TYPES[short], (), (), {}, nonce, error))

    def time_out(self, short: str) -> list[str]:
        self.session.time_out(self.unanswered[TYPES[short]][0])
        return self._responses()

    def confirm_report(self) -> list[str]:
        self.session.confirm_report()
        return self._responses()

    def check_removals(self, now: float) -> list[str]:
        self.now = now
        self.session.check_removals()
        return self._responses()

    def retry_listeners(self) -> list[str]:
        self.session.retry_listeners()
        return self._responses()

    def _receive(self, request: DeltaRequest) -> list[str]:
        rejected = self.session.receive(request)
        self.rejected += [f"{SHORT[item.type_url]} {item.name}={item.digest}: {item.message}" for item in rejected]
        return self._responses()

    def serve(self, cluster: str = "a") -> Self:
        """Subscribe a new proxy to one cluster, its endpoints, the listener `l` and the route `r`; acknowledge everything."""
        self.request("CDS")
        self.request("EDS", cluster)
        self.request("LDS")
        self.request("RDS", "r")
        self.ack_all()
        return self

    def ack_all(self) -> None:
        """Acknowledge all responses until no more follow."""
        while any(self.unanswered.values()):
            for short in TYPES:
                if self.unanswered[TYPES[short]]:
                    self.ack(short)


@pytest.fixture
def stream() -> Callable[..., Stream]:
    """Return a function that makes a stream from a wanted configuration in shorthand."""
    return Stream
