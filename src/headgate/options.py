"""The options of a mesh: one struct, from which commands, arguments of the control plane's pods and chart values derive.

A new option is a field with an `Option` here, or in `Settings` if the compiler reads it, and the code that reads it.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from headgate.option import DeclaredOption, Option, check_collector, declared_options
from headgate.resources.core.proxy_annotations import (
    CONCURRENCY,
    CPU,
    CPU_LIMIT,
    DEFAULTS,
    LOG_LEVEL,
    MEMORY,
    MEMORY_LIMIT,
    PROXY_ANNOTATIONS,
    RESOURCES,
    checked,
)
from headgate.resources.meta import SYSTEM_NAMESPACE, Value, is_dns_label, is_dns_subdomain
from headgate.settings import COLLECTOR_SCHEMA, Settings

InjectionMode = Literal["all", "labelled", "none"]
"""The pods that get a sidecar: `all` except pods that opt out, only `labelled` pods that opt in, or `none`."""
By = Literal["workload", "pod"]
"""The labels of traffic metrics."""
NEVER_INJECTED = ("kube-system", SYSTEM_NAMESPACE)
_IMAGE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._/:@-]*")


class IssuerRef(Value, frozen=True, kw_only=True):
    """A reference to cert-manager's Issuer or ClusterIssuer.

    Requests are created in `namespace`, where an Issuer must be too. `patience` is the longest wait for an answer.
    """

    name: str
    kind: str = "Issuer"
    group: str = "cert-manager.io"
    namespace: str = SYSTEM_NAMESPACE
    patience: timedelta = timedelta(seconds=60)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def check_image(image: str) -> str:
    """Return the name of an image. Raises ValueError if no image can have it."""
    if not _IMAGE.fullmatch(image):
        raise ValueError(f"{image!r} is not the name of an image; write REGISTRY/NAME:TAG")
    return image


def parse_namespaces(text: str) -> tuple[str, ...]:
    """Return the namespaces in a text. Raises ValueError."""
    names = tuple(text.split(",")) if text else ()
    for name in names:
        if not is_dns_label(name):
            raise ValueError(
                f"{name!r} is not the name of a namespace; write names separated by commas, without spaces"
            )
        if name in NEVER_INJECTED:
            raise ValueError(f"{name} can't belong to the mesh; remove it")
    return tuple(dict.fromkeys(names))


def parse_pull_secrets(text: str) -> tuple[str, ...]:
    """Return the names of Secrets in a text. Raises ValueError."""
    names = tuple(text.split(",")) if text else ()
    for name in names:
        if not is_dns_subdomain(name):
            raise ValueError(f"{name!r} is not the name of a Secret; write names separated by commas, without spaces")
    return names


def parse_issuer(text: str) -> IssuerRef | None:
    """Return the issuer that a text names, None if it is empty. Raises ValueError.

    An external issuer has its group: `StepIssuer.certmanager.step.sm/mesh`.
    """
    if not text:
        return None
    where, _, name = text.partition("/")
    kind, _, group = where.partition(".")
    if not (kind.isalnum() and is_dns_subdomain(name) and (not group or is_dns_subdomain(group))):
        raise ValueError(f"{text!r} is not an issuer; write Issuer/NAME or ClusterIssuer/NAME")
    if not group and kind not in {"Issuer", "ClusterIssuer"}:
        raise ValueError(f"{kind} is not a cert-manager kind; write Issuer, ClusterIssuer or KIND.GROUP")
    return IssuerRef(name=name, kind=kind, group=group or "cert-manager.io")


def parse_metrics_source(text: str) -> str:
    """Return the URL in `prometheus=URL`; empty for headgate's own counters. Raises ValueError."""
    if not text:
        return ""
    kind, _, url = text.partition("=")
    where = urlsplit(url)
    if kind != "prometheus" or where.scheme not in {"http", "https"} or not where.hostname:
        raise ValueError(f"{text!r} is not a source of metrics: write prometheus=http://HOST:PORT")
    if where.username or where.password:
        raise ValueError(
            "the URL of a metrics source must not have a password, because other users of this machine or cluster could"
            " read it"
        )
    return url


def _field_of(annotation: str) -> str:
    """Return the field of the option that an annotation of a pod or namespace replaces."""
    return annotation.rpartition("/")[2].replace("-", "_")


def _of_proxies(annotation: str, sentence: str, metavar: str = "QUANTITY") -> Option:
    """Return the option that an annotation of a pod or namespace replaces. Empty quantities are no request, or no limit."""

    def read(text: str) -> str:
        return text if not text and annotation in RESOURCES else checked(annotation, text)

    _, _, words = _field_of(annotation).partition("_")
    first, *more = words.split("_")
    return Option(
        help=f"{sentence} The annotation {annotation} of a pod or namespace is stronger.",
        read=read,
        cluster=True,
        metavar=metavar,
        value=f"proxy.{first}{''.join(map(str.capitalize, more))}",
        schema={"type": ["string", "number"]},
    )


class MeshOptions(Settings, frozen=True, kw_only=True):
    """All options of a mesh, with the settings of the compiler. `image` is not among them: each command has its own default.

    `metrics_source` is the URL of a Prometheus, whose counts replace headgate's own. With `namespaces`, only they and the
    control plane's own belong to the mesh.
    """

    sidecars: Annotated[
        InjectionMode,
        Option(
            help="Which pods get a sidecar; labelled: those that a label, an annotation or a TLSConfig selects; all: all"
            " pods that do not opt out."
        ),
    ] = "labelled"
    namespaces: Annotated[
        tuple[str, ...],
        Option(
            help="Names of the namespaces that belong to the mesh, separated by commas; by default all.",
            read=parse_namespaces,
            cluster=True,
            metavar="NAME[,NAME]",
            schema={
                "description": "Names of the namespaces that belong to the mesh; by default all.",
                "items": {
                    "type": "string",
                    "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
                    "not": {"enum": list(NEVER_INJECTED)},
                },
            },
        ),
    ] = ()
    pull_secrets: Annotated[
        tuple[str, ...],
        Option(
            help="Names of Secrets with which nodes pull the image, separated by commas. Each namespace with sidecars needs"
            " them.",
            read=parse_pull_secrets,
            cluster=True,
            metavar="NAME[,NAME]",
            value="",
        ),
    ] = ()
    cert_manager_issuer: Annotated[
        IssuerRef | None,
        Option(
            help="cert-manager's issuer of all certificates, instead of headgate's own authority: Issuer/NAME in the"
            " namespace headgate-system, or ClusterIssuer/NAME.",
            read=parse_issuer,
            cluster=True,
            metavar="KIND/NAME",
            value="certManager.issuer",
            schema={"pattern": r"^((Issuer|ClusterIssuer|[A-Za-z0-9]+\.[a-z0-9.-]+)/[a-z0-9.-]+)?$"},
        ),
    ] = None
    node_agent: Annotated[
        bool,
        Option(
            help="Run an agent on each node that redirects the connections of pods, whose init container then needs no"
            " capabilities. The annotation headgate.dev/redirection of a namespace or pod is stronger.",
            value="nodeAgent.enabled",
            cluster=True,
        ),
    ] = False
    custom_metrics: Annotated[
        bool,
        Option(
            help="Serve custom.metrics.k8s.io to HorizontalPodAutoscalers. A cluster can have only one server of this"
            " group.",
            value="customMetrics.enabled",
            cluster=True,
        ),
    ] = False
    external_metrics: Annotated[
        bool,
        Option(
            help="Serve external.metrics.k8s.io to Flagger and to HorizontalPodAutoscalers. A cluster can have only one"
            " server of this group.",
            value="externalMetrics.enabled",
            cluster=True,
        ),
    ] = False
    aggregated_apis: Annotated[
        bool,
        Option(
            help="Register the metrics and inspect APIs. Without them, commands and Prometheus can't read the mesh; with them,"
            " Kubernetes deletes no namespace while no replica is active.",
            cluster=True,
        ),
    ] = True
    metrics_by: Annotated[
        By,
        Option(help="Labels of the traffic metrics for Prometheus; pod creates many more series.", value="metrics.by"),
    ] = "workload"
    metrics_source: Annotated[
        str,
        Option(
            help="prometheus=URL: the metrics API reads this Prometheus instead of headgate's own counters, and the series"
            " have the labels of pods.",
            read=parse_metrics_source,
            metavar="prometheus=URL",
            value="metrics.source",
            schema={"pattern": r"^(prometheus=https?://[^\s@]*[^\s@:])?$"},
        ),
    ] = ""
    otlp_collector: Annotated[
        str,
        Option(
            help="HOST:PORT of an OpenTelemetry collector (gRPC, plaintext) to which proxies also report.",
            read=check_collector,
            metavar="HOST:PORT",
            schema=COLLECTOR_SCHEMA,
        ),
    ] = ""
    nginx_image: Annotated[
        str,
        Option(
            help="An image with headgate and nginx, for Services that request a gateway with nginx.",
            read=lambda text: text and check_image(text),
            metavar="IMAGE",
            cluster=True,
            schema={"pattern": "^([a-zA-Z0-9][a-zA-Z0-9._/:@-]*)?$"},
        ),
    ] = ""

    proxy_cpu: Annotated[str, _of_proxies(CPU, "Processor time that sidecars request.")] = DEFAULTS[CPU]
    proxy_memory: Annotated[str, _of_proxies(MEMORY, "Memory that sidecars request.")] = DEFAULTS[MEMORY]
    proxy_cpu_limit: Annotated[str, _of_proxies(CPU_LIMIT, "Processor time limit of sidecars.")] = ""
    proxy_memory_limit: Annotated[str, _of_proxies(MEMORY_LIMIT, "Memory limit of sidecars.")] = DEFAULTS[MEMORY_LIMIT]
    proxy_concurrency: Annotated[str, _of_proxies(CONCURRENCY, "Number of worker threads of sidecars.", "NUMBER")] = (
        DEFAULTS[CONCURRENCY]
    )
    proxy_log_level: Annotated[str, _of_proxies(LOG_LEVEL, "Log level of sidecars.", "LEVEL")] = DEFAULTS[LOG_LEVEL]

    @property
    def proxy(self) -> Mapping[str, str]:
        """The settings of sidecars by the annotations of pods and namespaces that replace them."""
        return {key: getattr(self, _field_of(key)) for key in PROXY_ANNOTATIONS}

    @property
    def series_by(self) -> By:
        """The labels of series for Prometheus: those of pods if it is the source of the metrics API, which is about pods."""
        return "pod" if self.metrics_source else self.metrics_by

    def settings(self, **replaced: Any) -> Settings:
        """Return the settings of the compiler, with those that the host sets."""
        own = {name: getattr(self, name) for name in Settings.__struct_fields__}
        return Settings(**{**own, **replaced})


PROXY_OPTIONS = tuple(map(_field_of, PROXY_ANNOTATIONS))
"""The options of injected proxies."""
OPTIONS: Mapping[str, DeclaredOption] = declared_options(MeshOptions)
"""All options of the mesh, by the names of their fields."""


class GivenOptions(msgspec.Struct, frozen=True):
    """The options of a command: the `texts` that the user wrote, by fields, and the `mesh` that they describe."""

    texts: Mapping[str, str]
    mesh: MeshOptions


def pod_arguments(texts: Mapping[str, str]) -> Sequence[str]:
    """Return the arguments of `headgate control-plane` for the texts of options; without a text, an option has its default."""
    arguments: list[str] = []
    for field, declared in OPTIONS.items():
        text = texts.get(field, declared.text)
        if declared.type is bool:
            arguments.append(declared.flag if text else _no(declared))
        else:
            arguments.append(f"{declared.flag}={text}")
    return arguments


def given_options(arguments: Sequence[str]) -> GivenOptions:
    """Return the options that `pod_arguments` of this or an earlier version wrote.

    Raises ValueError for a value that this version does not accept, and for an option with a value that it does not have.
    """
    texts = {}
    for argument in arguments:
        flag, _, text = argument.partition("=")
        declared = next((option for option in OPTIONS.values() if flag in (option.flag, _no(option))), None)
        if declared:
            texts[declared.field] = text if declared.type is not bool else "" if flag == _no(declared) else str(True)
        elif not (
            argument.endswith("=") or argument.startswith("--no-")
        ):  # an earlier version wrote unused options too
            raise ValueError(f"this version has no option {argument}")
    values: dict[str, Any] = {field: _value(OPTIONS[field], text) for field, text in texts.items()}
    return GivenOptions(texts, MeshOptions(**values))


def _value(declared: DeclaredOption, text: str) -> Any:
    if declared.type is bool:
        return bool(text)
    if get_origin(declared.type) is Literal and text not in get_args(declared.type):
        raise ValueError(f"this version has no value {text} of {declared.flag}")
    return declared.option.read(text)


def _no(declared: DeclaredOption) -> str:
    """Return the flag that sets an option of type bool to false."""
    return declared.flag.replace("--", "--no-", 1)
