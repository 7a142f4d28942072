"""The operator's settings as one immutable value, so that no stage reads the environment."""

from typing import Literal

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that change the compiled configuration.

    `domain` is the cluster's DNS domain.
    `lowest_port` is the smallest TCP port that the gateway may bind; lower ports are only reachable through its HTTP proxy.
    `trust_domain` starts every SPIFFE ID of the mesh: `spiffe://<trust domain>/ns/<namespace>/sa/<account>`.
    `mtls` is the TLS mode of workloads with a sidecar that no TLSConfig selects (R74).
    `access` is for workloads that no TrafficTarget selects (D21): `selected` allows every request, `deny` denies all.
    `certificate_seconds` is the lifetime of a workload's certificate; connections between proxies end well before it.
    `outbound` says whether a transparent sidecar lets connections to addresses pass that belong to no Service.
    """

    domain: str = "cluster.local"
    lowest_port: int = 0
    trust_domain: str = "cluster.local"
    mtls: Literal["off", "permissive", "strict"] = "permissive"
    access: Literal["selected", "deny"] = "selected"
    outbound: Literal["allow", "refuse"] = "allow"
    certificate_seconds: int = 24 * 60 * 60


DEFAULTS = Settings()
