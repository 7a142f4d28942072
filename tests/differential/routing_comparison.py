"""Compare the model's routing with a real proxy's, for requests in random worlds or for one request."""

import os
import re
from collections import Counter

import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.differential.backends import Head, Tally
from tests.differential.clients import unusual_requests, with_headless
from tests.differential.content_expectation import misplaced_content, misplaced_origin
from tests.differential.datagram_comparison import misdirected
from tests.differential.gateway_lab import GatewayLab
from tests.differential.lab import Objects
from tests.differential.protocols import protocols
from tests.differential.requests import address_of, connected, head
from tests.differential.routing_expectation import (
    ExpectedShares,
    disagreement,
    expected,
    misplaced_copies,
    place_of,
    ready_in,
)
from tests.differential.session_comparison import strayed
from tests.differential.worlds import Sent, edge_worlds, root_worlds, worlds

from headgate.model.routing import GatewayPort, Mesh, Protocol

_MEMBER = re.compile(r"member-\d+")
WORLDS = int(os.environ.get("FUZZ_WORLDS", "60"))
SAMPLES = ((24, 3), (2400, 6))
"""Numbers of requests with random responders, and the allowed deviation in sigmas. The second,
larger sample is sent only if the result of the first is unlikely. It detects the same deviation of a share as 600
requests with 3 sigma, but a correct proxy fails it only once in 500 million runs."""


def compare_worlds(lab: GatewayLab) -> Counter[str]:
    """Compare random worlds; return the numbers of worlds and requests."""
    seen: Counter[str] = Counter()

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False)
    @given(
        with_headless(st.one_of(worlds(protocols()), root_worlds(), edge_worlds())),
        st.lists(unusual_requests(), min_size=4, max_size=10, unique=True),
        st.sampled_from(("", "", "blue")),
    )
    def each(world: Objects, sent: list[Sent], home: str) -> None:
        note("---\n".join(yaml.safe_dump(lab.placed(obj), sort_keys=False) for obj in world.values()))
        mesh = lab.serve(world, home).mesh.seen_from(home)
        for request in sent:
            check(lab, mesh, placed(lab, request))
        seen.update(worlds=1, requests=len(sent))

    each()
    return seen


def placed(lab: GatewayLab, sent: Sent) -> Sent:
    """Return a request with the ports of members filled in, which the names of pods have."""

    def port(found: re.Match[str]) -> str:
        return str(lab.filled_in(found[0]))

    return sent._replace(authority=_MEMBER.sub(port, sent.authority), tunnel=_MEMBER.sub(port, sent.tunnel))


def check(lab: GatewayLab, mesh: Mesh, sent: Sent) -> None:
    """Send a request, many times if the model predicts shares, and compare the responders with the model."""
    where, place = address_of(mesh, sent, lab), place_of(mesh, sent)
    if where is None:
        return
    if isinstance(place, GatewayPort) and place.protocol is Protocol.UDP:
        difference = misdirected(lab, mesh, place, sent)
        assert not difference, f"{sent}: {difference}"
        return
    wanted = expected(mesh, sent, name_of=lab.member, draws=lab.draws)
    for count, sigmas in SAMPLES if is_random(wanted) else ((1, 0),):
        lab.forget()
        before = lab.copies(wanted.copies)
        tally = lab.send(where, head(sent), count, **connected(sent, wanted))
        issued = {name: number - before[name] for name, number in lab.copies(wanted.copies).items()}
        extra = lab.extra(tally.counted, sum(issued.values())) if wanted.http else Counter()
        difference = (
            disagreement(wanted, tally.counted, sigmas=sigmas)
            or misplaced_copies(wanted, count, issued, extra, sigmas=sigmas)
            or misplaced_content(wanted, sent, tally, lab, ready_in(mesh))
            or misplaced_origin(wanted, tally)
            or strayed(lab, mesh, sent, wanted, of_members(tally))
        )
        if "far from" not in difference:
            break
    assert not difference, f"{sent}: {difference}\ncounted {dict(tally.counted)}\nwanted {wanted}"


def is_random(wanted: ExpectedShares) -> bool:
    """Return whether several requests are needed to compare with an expectation."""
    return len(wanted.shares) > 1 or any(part < 1 for parts in wanted.copied.values() for part in parts)


def of_members(tally: Tally) -> dict[str, Head]:
    """Return the responses of members."""
    return {name: response for name, response in tally.heads.items() if isinstance(name, str) and response}
