"""Compare the model's routing with a real nginx that was rendered from it, for requests in random worlds.

Requests that nginx treats differently, as docs/other-proxies.md says, are left out, and so are the routes of which
something was omitted, as far as that changes the answers.
"""

import os

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from tests.differential.content_expectation import misplaced_content
from tests.differential.protocols import protocols
from tests.differential.rendered_lab import RenderedLab, draws, without_users
from tests.differential.routing_expectation import disagreement, expected, misplaced_copies, place_of
from tests.differential.test_routing import SAMPLES, connected, head
from tests.differential.worlds import requests, root_worlds, worlds
from tests.render.nginx.nginx_process import STREAM_MODULE, needs_nginx, serving

from headgate.model.authorities import resolve
from headgate.model.routing import Protocol
from headgate.render.nginx.configuration import render
from headgate.render.omissions import Reason
from headgate.resources.meta import Key

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0), needs_nginx]

WORLDS = int(os.environ.get("FUZZ_WORLDS", "40"))
SENT_ONCE = frozenset({"accept", "te", "x-envoy-retry-on", "x-forwarded-proto", "x-request-id", "keep-alive"})
OF_CONDITIONS = {Reason.HEADER, Reason.REGULAR_EXPRESSION}
OF_CONTENT = {Reason.EMPTY_HEADER, Reason.FILTER, Reason.HEADER}


@pytest.fixture(scope="module")
def nginx_lab():
    with RenderedLab(lambda selection: render(selection, stream_module=STREAM_MODULE), serving) as found:
        yield found


def test_nginx_routes_as_the_model_predicts(nginx_lab):
    lab = nginx_lab

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False)
    @given(st.one_of(worlds(protocols()), root_worlds()), st.lists(requests(), min_size=6, max_size=16, unique=True))
    def each(world, sent):
        sent = [item for item in sent if is_usual(item)]
        assume(sent)
        note("---\n".join(yaml.safe_dump(lab.placed(obj), sort_keys=False) for obj in world.values()))
        mesh, together, rendered = lab.serve(world)
        plain = without_users(mesh)
        for item in sent:
            check(lab, plain, together, rendered.omissions, item)

    each()


def is_usual(sent):
    """Return whether nginx treats the headers of a request as headgate's own proxies do."""
    if sent.server_name.endswith("."):  # not valid in SNI (RFC 6066, 3); nginx ignores the dot
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
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    drawn = len(wanted.shares) > 1 or any(part < 1 for parts in wanted.copied.values() for part in parts)
    for count, sigmas in SAMPLES if drawn else ((1, 0),):
        lab.forget()
        tally = lab.send(where, head(sent), count, **connected(sent, wanted))
        found = disagreement(wanted, tally.counted, sigmas=sigmas)
        if wanted.http and Reason.COPY_PROTOCOL not in reasons and not connected(sent, wanted)["each_connects"]:
            issued = {name: count * sum(parts) for name, parts in wanted.copies.items()}
            found = found or misplaced_copies(wanted, count, issued, lab.extra(tally.counted), sigmas=sigmas)
        if not reasons & OF_CONTENT:
            found = found or misplaced_content(wanted, sent, tally, lab, ready)
        if not found or "far from" not in found:
            break
    assert not found, f"{sent}: {found}\ncounted {dict(tally.counted)}\nwanted {wanted}"


def left(omissions, route):
    """Return the reasons why something of a route was omitted."""
    return {
        item.reason
        for item in omissions
        if item.origin == route.origin and (not route.name or item.where.endswith(f"route {route.name}"))
    }


def destination(lab, mesh, together, sent):
    """Return the address of a request and the request as it is sent there; no address if nginx serves it nowhere."""
    if sent.via == "gateway":
        place = place_of(mesh, sent)
        return place and (place.address, sent.port), sent
    if sent.via == "proxy":
        ref = resolve(mesh, sent.authority)
        owners = {host.owner for port in together.ports if ref and port.port == ref.port for host in port.hosts}
        if ref is None or Key("", "Service", *ref.service.split("/")) not in owners:
            return None, sent
        sent = sent._replace(via="address", service=ref.service, port=ref.port)
        where = lab.shared, ref.port
    else:
        fronts = [front for front in mesh.frontends if front.service == sent.service and sent.port in front.ports]
        where = (fronts[0].address, sent.port) if fronts else None
    spoken = {(table.ref.service, table.ref.port): table.protocol for table in mesh.tables}
    if spoken.get((sent.service, sent.port)) is Protocol.HTTP2:  # this client has HTTP/1.1
        return None, sent
    return where, sent
