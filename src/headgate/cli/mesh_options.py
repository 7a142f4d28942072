"""The options for settings of the mesh, which several of `up`, `install`, `control-plane` and `inject` share."""

import re
from typing import Annotated, Literal

import typer
from msgspec import structs

from headgate import __version__
from headgate.admission.injection import InjectionMode
from headgate.admission.sidecar_containers import NEVER_INJECTED
from headgate.cli.output import usage_error
from headgate.envoy.collector_export import parse_collector
from headgate.errors import HeadgateError, TelemetryError
from headgate.kubernetes.cert_manager import IssuerRef
from headgate.model.identities import parse_id, spiffe_id
from headgate.plane.metrics import By
from headgate.resources.meta import is_dns_label, is_dns_subdomain
from headgate.resources.trace_sampling import parse_sampling
from headgate.settings import Settings
from headgate.telemetry.counters.flows import Source
from headgate.telemetry.prometheus_source import parse_source

IMAGE = f"ghcr.io/headgate/headgate:{__version__}"
Image = Annotated[str, typer.Option(help="Image of the control plane and of the sidecars.")]
Sidecars = Annotated[
    InjectionMode,
    typer.Option(help="Which pods get a sidecar; labelled: those that a label, an annotation or a TLSConfig selects."),
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
Outbound = Annotated[
    Literal["allow", "refuse"],
    typer.Option(
        help="Connections through transparent sidecars to addresses that belong to no Service of the mesh; allow: they"
        " pass; refuse: they are closed."
    ),
]
PullSecrets = Annotated[
    str,
    typer.Option(
        help="Names of Secrets with which nodes pull the image, separated by commas. Each namespace with sidecars needs them.",
        metavar="NAME[,NAME]",
        show_default=False,
    ),
]
CertManagerIssuer = Annotated[
    str,
    typer.Option(
        help="cert-manager's issuer of all certificates, instead of headgate's own authority: Issuer/NAME in the namespace"
        " headgate-system, or ClusterIssuer/NAME.",
        metavar="KIND/NAME",
        show_default=False,
    ),
]
Namespaces = Annotated[
    str,
    typer.Option(
        help="Names of the namespaces that belong to the mesh, separated by commas; by default all.",
        metavar="NAME[,NAME]",
        show_default=False,
    ),
]
MetricsBy = Annotated[
    By, typer.Option(help="Labels of the traffic metrics for Prometheus; pod creates many more series.")
]
MetricsSource = Annotated[
    str,
    typer.Option(
        help="prometheus=URL: the metrics API reads this Prometheus instead of headgate's own counters, and the series have"
        " the labels of pods.",
        show_default=False,
    ),
]
OtlpCollector = Annotated[
    str,
    typer.Option(
        help="HOST:PORT of an OpenTelemetry collector (gRPC, plaintext) to which proxies also report.",
        show_default=False,
    ),
]
OtlpTraces = Annotated[
    str,
    typer.Option(
        help="HOST:PORT of an OpenTelemetry collector (gRPC, plaintext) to which proxies send spans.",
        show_default=False,
    ),
]
TraceSampling = Annotated[
    str,
    typer.Option(
        help="Percentage of requests without a trace for which proxies begin a sampled one, with at most two decimals.",
        metavar="PERCENT",
    ),
]
NginxImage = Annotated[
    str,
    typer.Option(
        help="An image with headgate and nginx, for Services that ask for a gateway with nginx.", show_default=False
    ),
]
TrustDomain = Annotated[str, typer.Option(help="Trust domain of all identities: spiffe://TRUST_DOMAIN/...")]
_IMAGE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._/:@-]*")


def check_image(image: str, *, option: str = "--image") -> str:
    """Return the name of an image. Raises BadParameter if no image can have it."""
    if not _IMAGE.fullmatch(image):
        raise usage_error(f"{image!r} is not the name of an image; write REGISTRY/NAME:TAG", option=option)
    return image


def check_trust_domain(trust_domain: str) -> str:
    """Return the trust domain. Raises BadParameter when no valid SPIFFE ID can have it."""
    if parse_id(spiffe_id(trust_domain, "default", "default")) is None:
        raise usage_error(
            f"{trust_domain!r} is not a trust domain; write it like a DNS name, in lowercase",
            option="--trust-domain",
        )
    return trust_domain


def parse_namespaces(text: str) -> tuple[str, ...]:
    """Return the names in the value of `--namespaces`. Raises BadParameter."""
    names = tuple(text.split(",")) if text else ()
    for name in names:
        if not is_dns_label(name):
            message = f"{name!r} is not the name of a namespace; write names separated by commas, without spaces"
            raise usage_error(message, option="--namespaces")
        if name in NEVER_INJECTED:
            raise usage_error(f"{name} can't belong to the mesh; remove it", option="--namespaces")
    return tuple(dict.fromkeys(names))


def parse_pull_secrets(text: str) -> tuple[str, ...]:
    """Return the names in the value of `--pull-secrets`. Raises BadParameter."""
    names = tuple(text.split(",")) if text else ()
    for name in names:
        if not is_dns_subdomain(name):
            message = f"{name!r} is not the name of a Secret; write names separated by commas, without spaces"
            raise usage_error(message, option="--pull-secrets")
    return names


def parse_issuer(text: str) -> IssuerRef | None:
    """Return the issuer in the value of `--cert-manager-issuer`, None if it is empty. Raises BadParameter.

    An external issuer has its group: `StepIssuer.certmanager.step.sm/mesh`.
    """
    if not text:
        return None
    where, _, name = text.partition("/")
    kind, _, group = where.partition(".")
    if not (kind.isalnum() and is_dns_subdomain(name) and (not group or is_dns_subdomain(group))):
        message = f"{text!r} is not an issuer; write Issuer/NAME or ClusterIssuer/NAME"
        raise usage_error(message, option="--cert-manager-issuer")
    if not group and kind not in {"Issuer", "ClusterIssuer"}:
        message = f"{kind} is not a cert-manager kind; write Issuer, ClusterIssuer or KIND.GROUP"
        raise usage_error(message, option="--cert-manager-issuer")
    return IssuerRef(name=name, kind=kind, group=group or "cert-manager.io")


def parse_metrics_source(text: str) -> Source | None:
    """Return the source of the metrics API; None for headgate's own counters. Raises BadParameter."""
    try:
        return parse_source(text) if text else None
    except TelemetryError as error:
        raise usage_error(str(error), option="--metrics-source") from error


def series_by(by: By, source: Source | None) -> By:
    """Return the labels of the series for Prometheus: those of pods if it is the `source`, whose answers are about pods."""
    return "pod" if source else by


def check_collector(address: str, *, option: str = "--otlp-collector") -> str:
    """Return the address of an OpenTelemetry collector, or an empty text. Raises BadParameter."""
    try:
        parse_collector(address)
    except HeadgateError as error:
        raise usage_error(str(error), option=option) from error
    return address


def check_traces(address: str) -> str:
    """Return the address of the collector of spans, or an empty text. Raises BadParameter."""
    return check_collector(address, option="--otlp-traces")


def sampling_share(text: str) -> int:
    """Return the value of `--trace-sampling` in ten-thousandths. Raises BadParameter."""
    try:
        return parse_sampling(text)
    except ValueError as error:
        raise usage_error(str(error), option="--trace-sampling") from error


def with_traces(settings: Settings, address: str, percentage: str) -> Settings:
    """Return settings with the values of `--otlp-traces` and `--trace-sampling`. Raises BadParameter."""
    return structs.replace(settings, traces=check_traces(address), trace_sampling=sampling_share(percentage))


def check_trace_sampling(text: str) -> str:
    """Return the value of `--trace-sampling`. Raises BadParameter."""
    sampling_share(text)
    return text
