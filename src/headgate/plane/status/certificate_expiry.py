"""Warnings that certificates of Gateways expire. The compiler knows no time, so the running control plane computes them."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from cryptography import x509

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled, Finding
from headgate.identity.certificates import validity
from headgate.model.routing import GatewayPort
from headgate.resources.meta import Key, timestamp

_NOTICE_S = 7 * 24 * 3600.0
_NOTICE_SHARE = 0.1
_REMEMBERED = 1_000  # certificates whose validity is known: it takes 0.1 ms to read


class _Validity(NamedTuple):
    """When a certificate begins and ends, and when a warning about its end begins, in seconds since the epoch."""

    begin: float
    notice: float
    end: float

    def problem(self, now: float) -> str:
        """Return what is wrong with the certificate at this time, and what to do; empty if nothing is."""
        if now < self.begin:
            return f"is not valid before {timestamp(self.begin)}; clients refuse it until then: replace it, or correct the clocks"
        if now >= self.end:
            return f"expired at {timestamp(self.end)}; clients refuse it: replace it"
        return f"expires at {timestamp(self.end)}, and clients refuse it then: replace it" if now >= self.notice else ""


def certificate_expiry(compiled: Compiled, now: float) -> tuple[Finding, ...]:
    """Return a finding for each Secret of a listener whose certificate has expired, expires soon, or is not valid yet.

    The finding is about the Gateway or ListenerSet of the listener. Soon means 7 days, or a tenth of the whole validity if that
    is less. `now` is in seconds since the epoch.
    """
    problems: dict[tuple[str, str], str] = {}
    for port, secret, valid in _certificates(compiled.mesh.gateways):
        if problem := valid.problem(now):
            problems[port.gateway, secret] = problem
    owners = compiled.report.certificate_owners() if problems else {}
    return tuple(
        Finding(
            about=owner,
            reason=Reason.CERTIFICATE_EXPIRES,
            field="",
            message=f"the certificate in Secret {secret} {problem}",
            related=(Key("", "Secret", *secret.split("/")),),
        )
        for (gateway, secret), problem in problems.items()
        for owner in owners[gateway, secret]
    )


def next_change(ports: Sequence[GatewayPort], now: float) -> float | None:
    """Return the time at which `certificate_expiry` returns other findings; None if it never does."""
    return min((time for _, _, valid in _certificates(ports) for time in valid if time > now), default=None)


def _certificates(ports: Sequence[GatewayPort]) -> Iterator[tuple[GatewayPort, str, _Validity]]:
    for port in ports:
        for _, certificate in port.tls:
            yield port, certificate.secret, _validity(certificate.chain)


@lru_cache(_REMEMBERED)
def _validity(chain: str) -> _Validity:
    """Return the validity of the first certificate of a chain, which is that of the server."""
    begin, end = validity(x509.load_pem_x509_certificate(chain.encode()))
    return _Validity(begin, end - min(_NOTICE_S, (end - begin) * _NOTICE_SHARE), end)
