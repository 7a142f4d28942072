"""Compare the model's routing with a real nginx that was rendered from it, for requests in random worlds.

Requests that nginx treats differently, as docs/tasks/other-proxies.md says, are left out, and so are the routes of which
something was omitted, as far as that changes the answers.
"""

import pytest
from tests.differential import edge
from tests.differential.content_expectation import misplaced_content
from tests.differential.rendered_lab import RenderedLab, compare_worlds, destination, draws, left
from tests.differential.requests import connected, head
from tests.differential.routing_comparison import SAMPLES, is_random
from tests.differential.routing_expectation import disagreement, expected, misplaced_copies, ready_in
from tests.render.nginx.nginx_process import STREAM_MODULE, needs_nginx, serving

from headgate.render.nginx.configuration import render
from headgate.render.omissions import OmissionReason

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0), needs_nginx]

SENT_ONCE = frozenset({"accept", "te", "x-envoy-retry-on", "x-forwarded-proto", "x-request-id", "keep-alive"})
OF_CONDITIONS = {OmissionReason.HEADER, OmissionReason.REGULAR_EXPRESSION}
OF_CONTENT = {OmissionReason.EMPTY_HEADER, OmissionReason.FILTER, OmissionReason.HEADER}


@pytest.fixture(scope="module")
def nginx_lab():
    with RenderedLab(lambda selection: render(selection, stream_module=STREAM_MODULE), serving) as found:
        yield found


def test_nginx_routes_as_the_model_predicts(nginx_lab):
    compare_worlds(nginx_lab, is_usual, check)


def is_usual(sent):
    """Return whether nginx treats the headers of a request as headgate's own proxies do."""
    if sent.server_name.endswith("."):  # not valid in SNI (RFC 6066, 3); nginx ignores the dot
        return False
    is_own_host = sent.server_name == sent.authority.partition(":")[0].lower()
    if sent.port in edge.VALIDATED and (sent.client != "client" or not is_own_host):
        return False
    names = [name.lower() for name, _ in sent.headers]
    if len(set(names)) < len(names) or any(not value for _, value in sent.headers):
        return False
    headers = {name.lower(): value for name, value in sent.headers}
    if set(headers) & {"connection", "upgrade"}:
        wanted = headers.pop("connection", ""), headers.pop("upgrade", "")
        if wanted not in {("keep-alive, Upgrade", "websocket"), ("keep-alive, Upgrade", "other")}:
            return False
    return all(
        name in SENT_ONCE or name in {"x-a", "x-b", "user-agent", "cookie", "x-user"} for name in headers
    ) and all(len(value) < 1000 and value == value.strip() and value.isprintable() for value in headers.values())


def check(lab, mesh, together, omissions, sent):
    """Send a request, many times if the model predicts shares, and compare the responders with the model."""
    where, sent = destination(lab, mesh, together, sent)
    if where is None:
        return
    wanted = expected(mesh, sent, name_of=lab.member, draws=lambda decision: draws(mesh, decision))
    decision = wanted.decision
    if decision and (
        decision.is_refused or any(OF_CONDITIONS & left(omissions, item.route) for item in decision.tried)
    ):
        return
    reasons = left(omissions, decision.route) if decision and decision.route else set()
    for count, sigmas in SAMPLES if is_random(wanted) else ((1, 0),):
        lab.forget()
        tally = lab.send(where, head(sent), count, **connected(sent, wanted))
        found = disagreement(wanted, tally.counted, sigmas=sigmas)
        if wanted.http and OmissionReason.COPY_PROTOCOL not in reasons and not connected(sent, wanted)["each_connects"]:
            issued = {name: count * sum(parts) for name, parts in wanted.copies.items()}
            found = found or misplaced_copies(wanted, count, issued, lab.uncounted(tally.counted), sigmas=sigmas)
        if not reasons & OF_CONTENT:
            found = found or misplaced_content(wanted, sent, tally, lab, ready_in(mesh))
        if not found or "far from" not in found:
            break
    assert not found, f"{sent}: {found}\ncounted {dict(tally.counted)}\nwanted {wanted}"
