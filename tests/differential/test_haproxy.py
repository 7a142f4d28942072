"""Compare the model's routing with a real HAProxy that was rendered from it, for requests in random worlds.

Requests that HAProxy treats differently, as docs/tasks/other-proxies.md says, are left out, and so are the routes of which
something was omitted, as far as that changes the answers.
"""

import pytest
from tests.differential.content_expectation import misplaced_content
from tests.differential.rendered_lab import RenderedLab, compare_worlds, destination, left
from tests.differential.requests import connected, head
from tests.differential.routing_expectation import disagreement, expected, ready_in
from tests.render.haproxy.haproxy_process import needs_haproxy, serving

from headgate.render.haproxy.configuration import render
from headgate.render.omissions import OmissionReason

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0), needs_haproxy]

SAMPLE = 24
USUAL = frozenset({"x-a", "x-b", "user-agent", "cookie", "x-user", "accept", "x-forwarded-host", "x-request-id", "x_a"})
OF_CONDITIONS = {OmissionReason.MATCH, OmissionReason.REGULAR_EXPRESSION}


@pytest.fixture(scope="module")
def haproxy_lab():
    with RenderedLab(render, serving) as found:
        yield found


def test_haproxy_routes_as_the_model_predicts(haproxy_lab):
    compare_worlds(haproxy_lab, is_usual, check)


def is_usual(sent):
    """Return whether HAProxy treats the headers of a request as headgate's own proxies do."""
    names = [name.lower() for name, _ in sent.headers]
    repeated = {name for name in names if names.count(name) > 1}
    return (
        USUAL.issuperset(names)
        and not repeated & {"user-agent", "accept", "x-request-id", "x-forwarded-host"}
        and all(len(value) < 1000 and value.isprintable() for _, value in sent.headers)
        # HAProxy refuses a malformed target before it closes the connection of a server name without a certificate.
        and (sent.target.isascii() or not sent.server_name)
    )


def check(lab, mesh, together, omissions, sent):
    """Send a request, many times if the model predicts shares, and compare the responders with the model."""
    where, sent = destination(lab, mesh, together, sent)
    if where is None:
        return
    wanted = expected(mesh, sent, name_of=lab.member, draws=lambda _: False)
    decision = wanted.decision
    if decision and any(OF_CONDITIONS & left(omissions, item.route) for item in decision.tried):
        return
    lab.forget()
    count = SAMPLE if len(wanted.shares) > 1 else 1
    tally = lab.send(where, head(sent), count, **connected(sent, wanted))
    difference = disagreement(wanted, tally.counted, sigmas=0) or misplaced_content(
        wanted, sent, tally, lab, ready_in(mesh)
    )
    assert not difference, f"{sent}: {difference}\ncounted {dict(tally.counted)}\nwanted {wanted}"
