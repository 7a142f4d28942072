"""Options of `headgate up` about identities: who gets a sidecar, who may call whom, and who signs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from headgate.admission.injection import Mode
from headgate.durations import milliseconds
from headgate.identity.pem import Files
from headgate.model.identities import parse_id, spiffe_id

SHORTEST_LIFETIME_S, LONGEST_LIFETIME_S = 10, 30 * 24 * 60 * 60

Sidecars = Annotated[Mode, typer.Option(help="Which pods get an Envoy of their own; labelled: those that ask for it.")]
Mtls = Annotated[
    Literal["off", "permissive", "strict"],
    typer.Option(help="What pods with a sidecar take that no TLSConfig selects; permissive: also plaintext."),
]
Access = Annotated[
    Literal["selected", "deny"],
    typer.Option(help="Who may call pods that no TrafficTarget selects: selected: everybody, deny: nobody."),
]
TrustDomain = Annotated[str, typer.Option(help="Begins every identity: spiffe://TRUST_DOMAIN/...")]
CertificateLifetime = Annotated[
    str, typer.Option(help="How long a workload's certificate lives; it is renewed at half of that: 10s to 720h.")
]
CaCert = Annotated[
    Path | None, typer.Option(help="PEM file: an authority's certificate and its chain, instead of headgate's own.")
]
CaKey = Annotated[Path | None, typer.Option(help="PEM file: the key of --ca-cert.")]


def authority(certificate: Path | None, key: Path | None) -> Files | None:
    """Return the user's own authority, if there is one."""
    if (certificate is None) != (key is None):
        raise typer.BadParameter("--ca-cert and --ca-key belong together; give both, or none", param_hint="'--ca-cert'")
    return Files(certificate, key) if certificate and key else None


def checked(trust_domain: str) -> str:
    """Return a trust domain that identities can begin with."""
    if parse_id(spiffe_id(trust_domain, "default", "default")) is None:
        raise typer.BadParameter(
            f"{trust_domain!r} is not a trust domain; write it like a DNS name, in small letters",
            param_hint="'--trust-domain'",
        )
    return trust_domain


def lifetime(text: str) -> int:
    """Return seconds. Shorter ones could not be renewed in time, and longer ones are no protection against theft."""
    try:
        seconds = milliseconds(text) // 1000
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--certificate-lifetime'") from None
    if not SHORTEST_LIFETIME_S <= seconds <= LONGEST_LIFETIME_S:
        raise typer.BadParameter(
            f"{text} is not between {SHORTEST_LIFETIME_S} s and {LONGEST_LIFETIME_S // 3600} h",
            param_hint="'--certificate-lifetime'",
        )
    return seconds
