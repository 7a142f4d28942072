"""Warnings that certificates of Gateways expire."""

import datetime as dt

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.make.server_certificates import BEGIN, certificate, pem

from headgate.compiler.reasons import Reason
from headgate.kinds import GATEWAY
from headgate.model.identities import PrivateText
from headgate.model.routing import GatewayPort, ListenerCertificate
from headgate.plane.status.certificate_expiry import certificate_expiry, next_change
from headgate.resources.meta import Key

DAY_S = 24 * 3600.0
KEY = ec.generate_private_key(ec.SECP256R1())
START = BEGIN.timestamp()
EDGE = Key(GATEWAY, "Gateway", "default", "edge")


def serving(*names: str, validity: dt.timedelta, number: int = 443) -> GatewayPort:
    """Return a port of the Gateway `edge` with a certificate from each of the named Secrets."""
    chain, key = certificate(KEY, validity=validity), PrivateText(pem(KEY))
    tls = tuple(
        (f"{name}.example", ListenerCertificate(secret=f"default/{name}", chain=chain, key=key)) for name in names
    )
    return GatewayPort(gateway="default/edge", address="127.0.0.1", port=number, tls=tls)


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
    found = certificate_expiry([serving("web", validity=dt.timedelta(days=90))], START + days * DAY_S)
    assert [item.message.startswith(f"the certificate in Secret default/web {message}") for item in found] == (
        [True] if message else []
    )


def test_a_warning_about_a_short_certificate_begins_when_a_tenth_is_left() -> None:
    ports = [serving("web", validity=dt.timedelta(days=1))]
    assert not certificate_expiry(ports, START + 0.89 * DAY_S)
    assert certificate_expiry(ports, START + 0.91 * DAY_S)


def test_each_secret_of_a_gateway_has_one_warning() -> None:
    validity = dt.timedelta(days=1)
    ports = [serving("a", "b", validity=validity), serving("a", validity=validity, number=8443)]
    found = certificate_expiry(ports, START + DAY_S)
    assert [(item.about, item.reason, item.related[0].name) for item in found] == [
        (EDGE, Reason.CERTIFICATE_EXPIRES, "a"),
        (EDGE, Reason.CERTIFICATE_EXPIRES, "b"),
    ]


def test_the_warnings_change_at_the_returned_time() -> None:
    ports = [serving("web", validity=dt.timedelta(days=90)), serving("short", validity=dt.timedelta(days=1))]
    now, seen = START - DAY_S, []
    while time := next_change(ports, now):
        assert certificate_expiry(ports, time - 1) != certificate_expiry(ports, time)
        seen.append((time - START) / DAY_S)
        now = time
    assert seen == pytest.approx([0, 0.9, 1, 83, 90])
