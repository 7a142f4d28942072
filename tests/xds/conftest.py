"""A stream in shorthand: `CDS a=1 b=2 -c` is a response with two clusters, by name and version, and one removal."""

import re
from collections import defaultdict

import pytest

from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET, Encoded
from headgate.xds.session import Request, Session

TYPES = {"CDS": CLUSTER, "EDS": ENDPOINTS, "SDS": SECRET, "LDS": LISTENER, "RDS": ROUTES, "SRDS": SCOPES}
SHORT = {type_url: short for short, type_url in TYPES.items()}
RESOURCE = re.compile(r"(?P<name>[\w-]+)=(?P<digest>\w+)(?:\((?P<needs>[\w,-]*)\))?(?:\*(?P<size>\d+))?")


def encoded(found):
    needs = frozenset((found["needs"] or "").split(",")) - {""}
    return Encoded(b"x" * int(found["size"] or 1), found["digest"], needs)


def config(*lines):
    """Read a configuration, one line a type: `RDS r=1(a,b)` is a route that names the clusters a and b."""
    out = {type_url: {} for type_url in TYPES.values()}
    for line in lines:
        short, _, rest = line.partition(" ")
        out[TYPES[short]] |= {found["name"]: encoded(found) for found in RESOURCE.finditer(rest)}
    return out


def written(response):
    resources = [f"{name}={item.digest}" for name, item in response.resources]
    return " ".join([SHORT[response.type_url], *resources, *(f"-{name}" for name in response.removed)])


class Stream:
    """Drives a session; each call returns what the session sends then."""

    def __init__(self, *lines):
        self.session = Session()
        self.unanswered = defaultdict(list)
        self.rejected = []
        self.session.offer(config(*lines))

    def _sent(self):
        responses = self.session.advance()
        for response in responses:
            self.unanswered[response.type_url].append(response.nonce)
        return [written(response) for response in responses]

    def offer(self, *lines):
        self.session.offer(config(*lines))
        return self._sent()

    def ask(self, short, names="", *, leave="", has=""):
        """Subscribe to `names` and unsubscribe from `leave`; `has` are the versions that the proxy holds, as `a=1`."""
        initial = {found["name"]: found["digest"] for found in RESOURCE.finditer(has)}
        return self._receive(Request(TYPES[short], tuple(names.split()), tuple(leave.split()), initial))

    def ack(self, short, names="", *, leave="", at=0):
        nonce = self.unanswered[TYPES[short]].pop(at)
        return self._receive(Request(TYPES[short], tuple(names.split()), tuple(leave.split()), {}, nonce))

    def nack(self, short, error="bad", *, at=0):
        nonce = self.unanswered[TYPES[short]].pop(at)
        return self._receive(Request(TYPES[short], (), (), {}, nonce, error))

    def lapse(self, short):
        self.session.lapse(self.unanswered[TYPES[short]][0])
        return self._sent()

    def retry(self):
        self.session.retry()
        return self._sent()

    def _receive(self, request):
        rejected = self.session.receive(request)
        self.rejected += [f"{SHORT[item.type_url]} {item.name}={item.digest}: {item.message}" for item in rejected]
        return self._sent()

    def serve(self, cluster="a"):
        """Let a fresh proxy take one cluster, its endpoints, the listener `l` and the route `r`; answer everything."""
        self.ask("CDS")
        self.ask("EDS", cluster)
        self.ask("LDS")
        self.ask("RDS", "r")
        self.settle()
        return self

    def settle(self):
        """Ack whatever is sent until nothing is."""
        while any(self.unanswered.values()):
            for short in TYPES:
                if self.unanswered[TYPES[short]]:
                    self.ack(short)


@pytest.fixture
def stream():
    """Make a stream whose wanted configuration is given in shorthand."""
    return Stream
