"""Compare `headgate explain` with `headgate try`, for requests in random worlds that one running headgate serves."""

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.differential.backends import refuses
from tests.differential.lab import Objects
from tests.differential.worlds import Sent, requests, worlds
from tests.e2e.running_mesh import RunningMesh
from typer.testing import CliRunner

from headgate.cli.app import app
from headgate.model.routing import Protocol
from headgate.resources.decode import validate

WORLDS = int(os.environ.get("FUZZ_WORLDS", "3"))
SAMPLES = ((20, 3), (2000, 6))  # number of requests, and the allowed deviation in sigmas (routing_comparison.SAMPLES)
SERVED = 200
FORBIDDEN = 403
NOT_SENT = {"connection", "content-length", "transfer-encoding", "expect", "upgrade", "bad name"}
KINDS = ("Service", "EndpointSlice", "TrafficSplit", "HTTPRouteGroup", "HTTPRoute", "ReferenceGrant")


class RunningMembers(NamedTuple):
    """A running headgate, and the ports of the backends of its worlds."""

    up: RunningMesh
    ports: Sequence[int]


Responder: TypeAlias = str | int
"""A Service, or the status of the proxy's own response."""


def compare_worlds(running: RunningMembers) -> Counter[str]:
    """Compare random worlds; return the numbers of worlds and requests."""
    seen: Counter[str] = Counter()
    served: list[str] = []

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False, deadline=None)
    @given(worlds(), st.lists(requests().filter(is_sent), min_size=6, max_size=10, unique=True))
    def each(world: Objects, sent: list[Sent]) -> None:
        objects = [placed(running, obj) for obj in world.values() if obj["kind"] in KINDS]
        text = "---\n".join(yaml.safe_dump(obj, sort_keys=False) for obj in objects if not validate(obj))
        note(text)
        if text not in served:  # headgate prints no line for an unchanged file
            running.up.write("world.yaml", text)
            served[:] = [text]
        for request in sent:
            compare(running, request)
        seen.update(worlds=1, requests=len(sent))

    each()
    return seen


def is_sent(sent: Sent) -> bool:
    """Return whether `try` can send a request: `try` sets some headers itself, and needs a lower-case host."""
    names = {name.lower() for name, _ in sent.headers}
    plain = all(value.isprintable() and value.isascii() for _, value in sent.headers)
    return sent.via == "proxy" and sent.authority.islower() and plain and not names & NOT_SENT


def placed(running: RunningMembers, value: Any) -> Any:
    """Return a value with the ports of backends filled in; headgate assigns the addresses of Services."""
    if isinstance(value, dict):
        return {name: placed(running, part) for name, part in value.items() if name != "clusterIP"}
    if isinstance(value, list):
        return [placed(running, part) for part in value]
    if isinstance(value, str) and value.startswith("member-"):
        return running.ports[int(value.removeprefix("member-"))]
    return value


def compare(running: RunningMembers, sent: Sent) -> None:
    """Compare `explain` with `try` for a request; if the result is unlikely, repeat `try` with more requests."""
    url = f"http://{sent.authority}{sent.target}"
    headers = [word for name, value in sent.headers for word in ("-H", f"{name}: {value}")]
    code, said = ask(running, "explain", sent.method, url, *headers)
    wanted = dict[Responder, Fraction]({FORBIDDEN: Fraction(1)}) if is_denied(said, sent) else shares(said)
    for number, sigmas in SAMPLES if len(wanted) > 1 else ((3, 0),):
        tried_code, tried = ask(running, "try", url, "-X", sent.method, "--number", str(number), *headers)
        if tried is None:
            routes_requests = said["status"]["service"] and Protocol(said["status"]["protocol"]).is_http
            assert not routes_requests, f"{sent}: try sends no request, but explain prints {said}"
            return
        difference = disagreement(wanted, counts(tried), number, sigmas)
        if "far from" not in difference:
            break
    assert not difference, f"{sent}: {difference}\nexplain {said}\ntry {tried}"
    route = said["status"]["route"] or {}
    about = route.get("object") or {"kind": "", "namespace": "", "name": ""}
    if about["kind"] != "HTTPRoute":  # `try` names the split of a request, but no HTTPRoute
        split = f"{about['namespace']}/{about['name']}" if about["name"] else ""
        assert not route or split == (tried["split"] or ""), f"{sent}: explain names {about}, try {tried['split']}"
        unused = [row for row in tried["leftOut"] if row["reason"] != "NoReadyEndpoints"]
        # `try` has 3 sigma, and the comparison above more.
        is_unlikely = len(wanted) > 1 and not tried["failed"]
        assert tried_code == 0 or code == 1 or unused or set(wanted) & {503} or is_unlikely, (
            f"{sent}: try fails\nexplain {said}\ntry {tried}"
        )


def ask(running: RunningMembers, *words: str) -> tuple[int, Any]:
    """Run a command with the running headgate; return its exit code and its JSON output (None if empty)."""
    done = CliRunner().invoke(app, [*words, "-o", "json", "--state", str(running.up.state)])
    return done.exit_code, json.loads(done.stdout) if done.stdout.startswith("{") else None


def is_denied(said: Mapping[str, Any], sent: Sent) -> bool:
    """Return whether the authorization server of a request's route denies it, or can't be reached."""
    server = said["status"]["authorizationServer"]
    if not server:
        return False
    return refuses(sent.headers) or not server["readyEndpoints"]


def shares(said: Mapping[str, Any]) -> Mapping[Responder, Fraction]:
    """Return the share of each Service, and of each status that the proxy itself returns, in the output of explain.

    All requests of a user that a sticky split recognizes have one responder.
    """
    sticky = said["status"]["stickiness"]
    if responder := sticky and (sticky["service"] or sticky["statusCode"]):
        return {responder: Fraction(1)}
    result: defaultdict[Responder, Fraction] = defaultdict(Fraction)
    for backend in said["status"]["backends"]:
        share = Fraction(backend["share"]["numerator"], backend["share"]["denominator"])
        result[backend["statusCode"] or backend["service"]] += share
    return {responder: share for responder, share in result.items() if share}


def counts(tried: Mapping[str, Any]) -> Counter[Responder]:
    """Return the number of responses of each Service, and of each status that the proxy itself returned.

    It answers preflights with the same status as the Services.
    """
    by_backend = {row["backend"]: row["requests"] for row in tried["backends"] if not row["backend"].startswith("(")}
    by_status = Counter({int(status): count for status, count in tried["statuses"].items()})
    by_status[SERVED] -= sum(by_backend.values())
    return Counter(by_backend) + by_status


def disagreement(wanted: Mapping[Responder, Fraction], counted: Counter[Responder], total: int, sigmas: int) -> str:
    """Return how the counts of `try` differ from the shares of `explain`; empty if they agree."""
    for responder in {name for name, count in counted.items() if count} - wanted.keys():
        return f"{responder} answered {counted[responder]} of {total} and has no share"
    for responder, share in wanted.items():
        room = sigmas * math.sqrt(total * share * (1 - share)) + len(wanted) if share < 1 else 0
        if abs(counted[responder] - total * share) > room:
            return f"{responder} answered {counted[responder]} of {total}, which is far from {float(total * share):.1f}"
    return ""
