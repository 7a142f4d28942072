"""Options of `headgate up` about metrics: where they are read, and where they go besides."""

import re
from typing import Annotated

import typer

from headgate.envoy.exporting import Collector
from headgate.errors import TelemetryError
from headgate.standalone.options import By
from headgate.telemetry.counters.flows import Source
from headgate.telemetry.prometheus_source import parse_source

LAST_PORT = 65535
# A name or an address, and no URL: that has a scheme, and may want TLS.
_HOST = re.compile(r"[0-9A-Za-z._-]+|[0-9A-Fa-f:.]+")

MetricsAddress = Annotated[
    str, typer.Option(help="HOST:PORT of /metrics for Prometheus; port 0 takes a free one. Without it there is none.")
]
MetricsBy = Annotated[By, typer.Option(help="What /metrics tells traffic apart by; pod: many more series.")]
MetricsSource = Annotated[
    str,
    typer.Option(help="prometheus=URL: the metrics API answers from this Prometheus, not from headgate's own counts."),
]
OtlpCollector = Annotated[
    str,
    typer.Option(help="HOST:PORT of an OpenTelemetry collector (gRPC, plaintext) that every proxy reports to too."),
]


def chosen(by: By, address: str) -> By:
    """Return what /metrics tells traffic apart by; to say so without an address would have no effect."""
    if by == "pod" and not address:
        raise typer.BadParameter(
            "it is for /metrics, which has no address; give --metrics-address too, such as 127.0.0.1:9900",
            param_hint="'--metrics-by'",
        )
    return by


def source(text: str) -> Source | None:
    """Return where the metrics API answers from, when it is not headgate's own counts."""
    try:
        return parse_source(text) if text else None
    except TelemetryError as error:
        raise typer.BadParameter(str(error), param_hint="'--metrics-source'") from error


def collector(text: str) -> Collector | None:
    """Return the collector that proxies report to besides."""
    place, _, port = text.rpartition(":")
    host = place.strip("[]")
    if text and not (_HOST.fullmatch(host) and port.isdecimal() and 0 < int(port) <= LAST_PORT):
        raise typer.BadParameter(
            f"{text!r} is no place of a collector; write HOST:PORT without http://, such as 127.0.0.1:4317",
            param_hint="'--otlp-collector'",
        )
    return Collector(host=host, port=int(port)) if text else None
