"""Warnings that certificates of Gateways expire."""

import datetime as dt
from collections.abc import Sequence

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import structs
from tests.make.server_certificates import BEGIN, certificate, pem

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled, Finding, GatewayOutcome, ListenerOutcome, Report
from headgate.kinds import GATEWAY
from headgate.model.edge_tls import ListenerCertificate
from headgate.model.identities import PrivateText
from headgate.model.routing import GatewayPort, Mesh
from headgate.plane.status.certificate_expiry import certificate_expiry, next_change
from headgate.resources.meta import Key
from headgate.shared_map import SharedMap

DAY_S = 24 * 3600.0
KEY = ec.generate_private_key(ec.SECP256R1())
START = BEGIN.timestamp()
EDGE = Key(GATEWAY, "Gateway", "default", "edge")
SET = Key(GATEWAY, "ListenerSet", "default", "team")


def serving(*names: str, validity: dt.timedelta, number: int = 443) -> GatewayPort:
    """Return a port of the Gateway `edge` with a certificate from each of the named Secrets."""
    chain, key = certificate(KEY, validity=validity), PrivateText(pem(KEY))
    tls = tuple(
        (f"{name}.example", ListenerCertificate(secret=f"default/{name}", chain=chain, key=key)) for name in names
    )
    return GatewayPort(gateway="default/edge", address="127.0.0.1", port=number, tls=tls)


def of_set(*secrets: str) -> GatewayOutcome:
    """Return the status of a ListenerSet whose listener has the certificates from some Secrets."""
    listener = ListenerOutcome(
        name="web", port=443, host="*", is_served=True, secrets=secrets, attached=0, kinds=(), conditions=()
    )
    return GatewayOutcome(
        about=SET, gateway="default/edge", sets=None, ports=(443,), listeners=(listener,), conditions=()
    )


def expiry(ports: Sequence[GatewayPort], now: float, *more: GatewayOutcome) -> tuple[Finding, ...]:
    """Return the findings about ports of the Gateway `edge`, and of ListenerSets with `more` outcomes."""
    secrets = tuple(dict.fromkeys(shown.secret for port in ports for _, shown in port.tls))
    own = structs.replace(of_set(*secrets), about=EDGE, sets=len(more))
    report = Report(seen=SharedMap(), gateways=(own, *more))
    return certificate_expiry(Compiled(revision=1, mesh=Mesh(domain="d", gateways=tuple(ports)), report=report), now)


@pytest.mark.parametrize(
    ("days", "message"),
    [
        (-1, "is not valid before 2026-01-01T00:00:00Z; "),
        (0, ""),
        (82.9, ""),
        (83, "expires at 2026-04-01T00:00:00Z, and clients refuse it then"),
        (90, "expired at 2026-04-01T00:00:00Z; clients refuse it"),
    ],
)
def test_a_warning_begins_seven_days_before_the_end(days: float, message: str) -> None:
    findings = expiry([serving("web", validity=dt.timedelta(days=90))], START + days * DAY_S)
    assert [item.message.startswith(f"the certificate in Secret default/web {message}") for item in findings] == (
        [True] if message else []
    )


def test_a_warning_about_a_short_certificate_begins_when_a_tenth_is_left() -> None:
    ports = [serving("web", validity=dt.timedelta(days=1))]
    assert not expiry(ports, START + 0.89 * DAY_S)
    assert expiry(ports, START + 0.91 * DAY_S)


def test_each_secret_of_a_gateway_or_listener_set_has_one_warning() -> None:
    validity = dt.timedelta(days=1)
    ports = [serving("a", "b", validity=validity), serving("a", validity=validity, number=8443)]
    findings = expiry(ports, START + DAY_S, of_set("default/b"))
    assert [(item.about, item.reason, item.related[0].name) for item in findings] == [
        (EDGE, Reason.CERTIFICATE_EXPIRES, "a"),
        (EDGE, Reason.CERTIFICATE_EXPIRES, "b"),
        (SET, Reason.CERTIFICATE_EXPIRES, "b"),
    ]


def test_the_warnings_change_at_the_returned_time() -> None:
    ports = [serving("web", validity=dt.timedelta(days=90)), serving("short", validity=dt.timedelta(days=1))]
    now, seen = START - DAY_S, []
    while time := next_change(ports, now):
        assert expiry(ports, time - 1) != expiry(ports, time)
        seen.append((time - START) / DAY_S)
        now = time
    assert seen == pytest.approx([0, 0.9, 1, 83, 90])
