"""Compare the model's routing with a real proxy's, for requests in random worlds or for one request."""

import os
import re
from collections import Counter
from typing import TypedDict

import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.differential.backends import CLOSES, header_lines
from tests.differential.clients import unusual_requests, with_headless
from tests.differential.content_expectation import misplaced_content
from tests.differential.gateway_lab import GatewayLab
from tests.differential.lab import Objects
from tests.differential.protocols import protocols
from tests.differential.routing_expectation import (
    ExpectedShares,
    disagreement,
    expected,
    misplaced_copies,
    place_of,
    ready_in,
    request_of,
)
from tests.differential.worlds import Sent, root_worlds, worlds
from tests.wire import Address

from headgate.model.routing import GatewayPort, Mesh

_MEMBER = re.compile(r"member-\d+")
WORLDS = int(os.environ.get("FUZZ_WORLDS", "60"))
SAMPLES = ((24, 3), (2400, 6))
"""Numbers of requests with random responders, and the allowed deviation in sigmas. The second,
larger sample is sent only if the result of the first is unlikely. It detects the same deviation of a share as 600
requests with 3 sigma, but a correct proxy fails it only once in 500 million runs."""


class Connected(TypedDict):
    """Connection options of a request: arguments of `MemberLab.send`."""

    each_connects: bool
    server_name: str
    tunnel: str


def compare_worlds(lab: GatewayLab) -> Counter[str]:
    """Compare random worlds; return the numbers of worlds and requests."""
    seen: Counter[str] = Counter()

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False)
    @given(
        with_headless(st.one_of(worlds(protocols()), root_worlds())),
        st.lists(unusual_requests(), min_size=4, max_size=10, unique=True),
    )
    def each(world: Objects, sent: list[Sent]) -> None:
        note("---\n".join(yaml.safe_dump(lab.placed(obj), sort_keys=False) for obj in world.values()))
        mesh = lab.serve(world).mesh
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
    where = address_of(mesh, sent, lab)
    if where is None:
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
        )
        if "far from" not in difference:
            break
    assert not difference, f"{sent}: {difference}\ncounted {dict(tally.counted)}\nwanted {wanted}"


def is_random(wanted: ExpectedShares) -> bool:
    """Return whether several requests are needed to compare with an expectation."""
    return len(wanted.shares) > 1 or any(part < 1 for parts in wanted.copied.values() for part in parts)


def connected(sent: Sent, wanted: ExpectedShares) -> Connected:
    """Return the connection options of a request: rejected or upgraded connections carry one request only."""
    odd = any(name.lower() in {"connection", "upgrade", "expect", CLOSES} for name, _ in sent.headers)
    return Connected(each_connects=not wanted.http or odd, server_name=sent.server_name, tunnel=sent.tunnel)


def address_of(mesh: Mesh, sent: Sent, lab: GatewayLab) -> Address | None:
    """Return the destination address of a request; None if its port has no listener."""
    if sent.via == "gateway":
        place = place_of(mesh, sent)
        return Address(place.address, sent.port) if isinstance(place, GatewayPort) else None
    if sent.via in {"proxy", "tunnel"}:
        return lab.http_proxy
    fronts = [front for front in mesh.frontends if front.service == sent.service and sent.port in front.ports]
    return Address(fronts[0].address, sent.port) if fronts and fronts[0].address else None


def head(sent: Sent) -> bytes:
    """Return a request as HTTP/1. Without an authority, HTTP/1.0 has no Host, and HTTP/1.1 an empty one (RFC 9112, 3.2)."""
    request = request_of(sent)
    fields = [*((("host", sent.authority),) if sent.authority or sent.version != "1.0" else ()), *request.headers]
    lines = [f"{request.method} {request.target} HTTP/{sent.version}", *header_lines(fields), ""]
    body = ["0", *header_lines(sent.trailers), "", ""] if sent.chunked else [""]
    return "\r\n".join([*lines, *body]).encode("utf-8", "surrogateescape")
