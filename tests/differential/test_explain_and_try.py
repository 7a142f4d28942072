"""Compare `headgate explain` with `headgate try`, for requests in random worlds.

Both use one running headgate. `make fuzz` compares more worlds. A failure prints the smallest failing world.
"""

import json
import math
import os
from collections import Counter
from fractions import Fraction

import pytest
import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.differential.worlds import requests, worlds
from typer.testing import CliRunner

from headgate.cli.app import app
from headgate.compiler.explain import PLAIN
from headgate.resources.decode import validate

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

WORLDS = int(os.environ.get("FUZZ_WORLDS", "3"))
SAMPLES = ((20, 3), (2000, 6))  # number of requests, and the allowed deviation in sigmas (test_routing.SAMPLES)
SERVED = 200
NOT_SENT = {"connection", "content-length", "transfer-encoding", "expect", "upgrade", "bad name"}
KINDS = ("Service", "EndpointSlice", "TrafficSplit", "HTTPRouteGroup", "HTTPRoute", "ReferenceGrant")


def test_explain_predicts_the_results_of_try(running):
    compare_worlds(running)


def compare_worlds(running):
    """Compare random worlds; return the numbers of worlds and requests."""
    seen, served = Counter(), []

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False, deadline=None)
    @given(worlds(), st.lists(requests().filter(is_sent), min_size=6, max_size=10, unique=True))
    def each(world, sent):
        objects = [placed(running, obj) for obj in world.values() if obj["kind"] in KINDS]
        text = "---\n".join(yaml.safe_dump(obj, sort_keys=False) for obj in objects if not validate(obj))
        note(text)
        if text not in served:  # headgate prints no line for an unchanged file
            running.write("world.yaml", text)
            served[:] = [text]
        for item in sent:
            compare(running, item)
        seen.update(worlds=1, requests=len(sent))

    each()
    return seen


def is_sent(item):
    """Return whether `try` can send a request: `try` sets some headers itself, and needs a lower-case host."""
    names = {name.lower() for name, _ in item.headers}
    plain = all(value.isprintable() and value.isascii() for _, value in item.headers)
    return item.via == "proxy" and item.authority.islower() and plain and not names & NOT_SENT


def placed(running, value):
    """Return a value with the ports of backends filled in; headgate assigns the addresses of Services."""
    if isinstance(value, dict):
        return {name: placed(running, item) for name, item in value.items() if name != "clusterIP"}
    if isinstance(value, list):
        return [placed(running, item) for item in value]
    if isinstance(value, str) and value.startswith("member-"):
        return running.members[int(value.removeprefix("member-"))].address.port
    return value


def compare(running, item):
    """Compare `explain` with `try` for a request; if the result is unlikely, repeat `try` with more requests."""
    url = f"http://{item.authority}{item.target}"
    headers = [word for name, value in item.headers for word in ("-H", f"{name}: {value}")]
    code, said = ask(running, "explain", item.method, url, *headers)
    wanted = shares(said)
    for number, sigmas in SAMPLES if len(wanted) > 1 else ((3, 0),):
        tried_code, tried = ask(running, "try", url, "-X", item.method, "-n", str(number), *headers)
        if tried is None:
            assert not said["service"], f"{item}: try sends no request, but explain prints {said}"
            return
        found = disagreement(wanted, counts(tried), number, sigmas)
        if "far from" not in found:
            break
    assert not found, f"{item}: {found}\nexplain {said}\ntry {tried}"
    by_split = f"TrafficSplit {tried['split']}" if tried["split"] else PLAIN
    if not said["object"].startswith("HTTPRoute "):  # `try` names the split of a request, but no HTTPRoute
        assert said["object"] in {by_split, ""}, f"{item}: explain names {said['object']}, try {by_split}"
        assert tried_code == 0 or code == 1 or set(wanted) & {503}, f"{item}: try fails\nexplain {said}\ntry {tried}"


def ask(running, *words):
    """Run a command with the running headgate; return its exit code and its JSON output (None if empty)."""
    done = CliRunner().invoke(app, [*words, "-o", "json", "--state", str(running.state)])
    return done.exit_code, json.loads(done.stdout) if done.stdout.startswith("{") else None


def shares(said):
    """Return the share of each Service, and of each status that the proxy itself returns, in the output of explain."""
    found = Counter()
    for backend in said["backends"]:
        found[backend["status"] or backend["service"]] += Fraction(backend["share"])
    return {responder: share for responder, share in found.items() if share}


def counts(tried):
    """Return the number of responses of each Service, and of each status that the proxy itself returned."""
    found = Counter(
        {row["backend"]: row["requests"] for row in tried["backends"] if not row["backend"].startswith("(")}
    )
    found.update({int(status): count for status, count in tried["statuses"].items() if int(status) != SERVED})
    return found


def disagreement(wanted, counted, total, sigmas):
    for responder in {name for name, count in counted.items() if count} - wanted.keys():
        return f"{responder} answered {counted[responder]} of {total} and has no share"
    for responder, share in wanted.items():
        room = sigmas * math.sqrt(total * share * (1 - share)) + len(wanted) if share < 1 else 0
        if abs(counted[responder] - total * share) > room:
            return f"{responder} answered {counted[responder]} of {total}, which is far from {float(total * share):.1f}"
    return ""
