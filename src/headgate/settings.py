"""The operator's settings as one immutable value, which is an argument of the compiler."""

from typing import Annotated, Literal

import msgspec

from headgate.option import Option, check_collector, check_trust_domain, parse_sampling

COLLECTOR_SCHEMA = {"pattern": r"^(([0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4})?$"}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that change the compiled configuration. Fields with an `Option` are set by users, the other ones by the host.

    `domain` is the cluster's DNS domain.
    `lowest_port` is the smallest TCP port that the gateway may bind; lower ports are reachable through its HTTP proxy.
    `mtls` is for workloads with a sidecar that no TLSConfig selects (R74), `access` for those that no TrafficTarget selects
    (D21).
    `certificate_seconds` is the lifetime of a workload's certificate. Connections between proxies end before it expires.
    With `gateway_pods`, each Gateway has pods and a Service of its own, as on a cluster.
    Without `gateway_pods`, `nginx` says whether nginx can listen for Services on this machine, instead of the gateway.
    `trace_sampling` is in ten-thousandths.
    """

    domain: str = "cluster.local"
    lowest_port: int = 0
    mtls: Annotated[
        Literal["off", "permissive", "strict"],
        Option(help="TLS mode of pods with a sidecar that no TLSConfig selects; permissive: mutual TLS and plaintext."),
    ] = "permissive"
    access: Annotated[
        Literal["selected", "deny"],
        Option(help="Callers allowed at pods that no TrafficTarget selects; selected: all callers; deny: none."),
    ] = "selected"
    outbound: Annotated[
        Literal["allow", "refuse"],
        Option(
            help="Connections through transparent sidecars to addresses that belong to no Service of the mesh; allow:"
            " they pass; refuse: they are closed.",
            cluster=True,
        ),
    ] = "allow"
    trust_domain: Annotated[
        str,
        Option(
            help="Trust domain of all identities: spiffe://TRUST_DOMAIN/...",
            read=check_trust_domain,
            metavar="NAME",
            schema={"pattern": "^[a-z0-9._-]+$", "maxLength": 255},
        ),
    ] = "cluster.local"
    otlp_traces: Annotated[
        str,
        Option(
            help="HOST:PORT of an OpenTelemetry collector (gRPC, plaintext) to which proxies send spans.",
            read=check_collector,
            metavar="HOST:PORT",
            value="traces.collector",
            schema=COLLECTOR_SCHEMA,
        ),
    ] = ""
    trace_sampling: Annotated[
        int,
        Option(
            help="Percentage of requests without a trace for which proxies begin a sampled one, with at most two"
            " decimals.",
            read=parse_sampling,
            text="1",
            metavar="PERCENT",
            value="traces.sampling",
            schema={
                "type": ["string", "number"],
                "pattern": r"^(100(\.00?)?|[0-9]{1,2}(\.[0-9]{1,2})?)$",
                "minimum": 0,
                "maximum": 100,
            },
        ),
    ] = 100
    gateway_pods: bool = False
    nginx: bool = True
    certificate_seconds: int = 24 * 60 * 60


DEFAULTS = Settings()
