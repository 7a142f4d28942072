"""Send the examples of plans to a real Envoy: before and after a change, it treats them as the plan says.

It also sends requests that no class of the plan includes: Envoy must treat them alike in both worlds.
"""

import os
from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.differential import edge
from tests.differential.gateway_lab import GatewayLab
from tests.differential.lab import Objects
from tests.differential.permissions import JUDGE
from tests.differential.plan_expectation import includes, is_usual, treatments
from tests.differential.plan_worlds import ANY_WORLD, families
from tests.differential.requests import address_of
from tests.differential.routing_comparison import check
from tests.differential.worlds import Sent, requests

from headgate.model.routing import Mesh
from headgate.plan.traffic import CLOSED, Entry, RequestClass, request_classes
from headgate.plan.treatment import Treatment

WORLDS = int(os.environ.get("FUZZ_WORLDS", "2"))  # families of worlds
SIZE = 6  # worlds of a family, which have 30 ordered pairs
EXAMPLES = 12  # of each plan


class Compared(NamedTuple):
    """The positions of two worlds, the examples of their plan, and requests that no class of it includes."""

    places: tuple[int, int]
    examples: Sequence[tuple[RequestClass, Sent]]
    outside: Sequence[Sent]

    def requests(self) -> list[Sent]:
        """Return all requests that both worlds get."""
        return [*(sent for _, sent in self.examples), *self.outside]


def compare_pairs(lab: GatewayLab) -> Counter[str]:
    """Compare the pairs of random families; return the numbers of pairs, examples, and requests outside of the classes.

    `sent` counts the requests that Envoy got; several pairs have the same ones.
    """
    seen: Counter[str] = Counter()

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False, deadline=None)
    @given(
        families(ANY_WORLD, SIZE),
        st.lists(requests().filter(lambda sent: sent.via != "proxy"), max_size=6, unique=True),
    )
    def each(family: list[Objects], more: list[Sent]) -> None:
        for world in family:
            note("---\n".join(yaml.safe_dump(lab.placed(obj), sort_keys=False) for obj in world.values()))
        meshes = [lab.compiled(world).mesh for world in family]
        compared = [_compared(meshes, places, more) for places in permutations(range(SIZE), 2)]
        for pair in compared:
            _assert_stated(pair, meshes, lab)
        for index, world in enumerate(family):
            mesh = lab.serve(world).mesh
            several = dict.fromkeys(sent for pair in compared if index in pair.places for sent in pair.requests())
            for sent in several:
                check(lab, mesh, sent)
            seen.update(sent=len(several))
        for pair in compared:
            seen.update(pairs=1, examples=len(pair.examples), outside=len(pair.outside))

    each()
    assert seen["examples"]
    return seen


def _compared(meshes: Sequence[Mesh], places: tuple[int, int], more: Sequence[Sent]) -> Compared:
    """Return the plan of a change between two worlds, as requests to send."""
    both = meshes[places[0]], meshes[places[1]]
    classes = [each for each in request_classes(*both) if not each.entry.consumer]  # the lab's proxy is no sidecar
    examples = [(item, sent) for item in classes if (sent := _sent(item))][:EXAMPLES]
    outside = [sent for sent in more if is_usual(sent) and not any(includes(item, sent, both) for item in classes)]
    return Compared(places, examples, outside)


def _assert_stated(pair: Compared, meshes: Sequence[Mesh], lab: GatewayLab) -> None:
    """Assert that the model treats the requests as the plan says."""
    both = [meshes[place] for place in pair.places]
    for item, sent in pair.examples:
        for mesh, stated in zip(both, (item.before, item.after), strict=True):
            if address_of(mesh, sent, lab):
                assert stated == CLOSED or _same(treatments([mesh], sent)[0], stated), (item, sent)
    for sent in pair.outside:
        treated = treatments(both, sent)
        assert not treated or treated[0] == treated[1], sent


def _same(treated: Treatment | list[int], stated: Treatment) -> bool:
    """Return whether a treatment of the model, or the statuses of the proxy's answers, is the treatment of a plan."""
    if isinstance(treated, list):
        return treated == [receiver.status for receiver in stated.receivers]
    return treated == stated


def _sent(item: RequestClass) -> Sent | None:
    """Return the example of a class as a request of the lab.

    Returns None without an example, if the lab adds a header that would change it, or if it has no host for the TLS server name.
    The authorization server is no member, so its own requests are left out.
    """
    request, entry = item.example, item.entry
    if request is None or entry.name == f"default/{JUDGE}":
        return None
    if any(name in {"content-length", "expect", "connection", "upgrade"} for name, _ in request.headers):
        return None
    host = request.authority.partition(":")[0].lower()
    if not host and _is_secure(entry):
        return None
    return Sent(
        service=entry.name if entry.kind == "Service" else "default/a",
        port=entry.port,
        via="gateway" if entry.kind == "Gateway" else "address",
        authority=request.authority,
        method=request.method,
        target=request.target,
        headers=request.headers,
        server_name=host if _is_secure(entry) else "",
    )


def _is_secure(entry: Entry) -> bool:
    return entry.port in edge.SECURE if entry.kind == "Gateway" else entry.port == edge.NAMED
