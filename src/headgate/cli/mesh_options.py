"""The options of a mesh that `up`, `install` and `control-plane` have."""

from typing import Annotated, Literal

import typer

from headgate.admission.injection import InjectionMode

Sidecars = Annotated[
    InjectionMode,
    typer.Option(help="Which pods get a sidecar; labelled: only those with the label headgate.dev/inject."),
]
Mtls = Annotated[
    Literal["off", "permissive", "strict"],
    typer.Option(
        help="TLS mode of pods with a sidecar that no TLSConfig selects; permissive: mutual TLS and plaintext."
    ),
]
Access = Annotated[
    Literal["selected", "deny"],
    typer.Option(help="Callers allowed at pods that no TrafficTarget selects; selected: all callers; deny: none."),
]
TrustDomain = Annotated[str, typer.Option(help="Trust domain of all identities: spiffe://TRUST_DOMAIN/...")]
