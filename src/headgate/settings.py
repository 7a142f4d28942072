"""What the person who runs headgate decides, as one value; nothing reads the environment later."""

from typing import Literal

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that change what is compiled.

    `lowest_port` is the smallest TCP port that the proxy may bind; ports below it are served to proxy clients only.
    `trust_domain` begins every identity of the mesh: `spiffe://<trust domain>/ns/<namespace>/sa/<account>`.
    `mtls` is what workloads with a sidecar do that no TLSConfig selects (R74): plaintext, both, or mutual TLS only.
    `access` is for workloads that no TrafficTarget selects (D21): open, or closed to everybody.
    `certificate_seconds` is how long a workload's certificate lives; connections between proxies are renewed within it.
    `outbound` is for what a transparent sidecar's application sends to an address that is no Service's.
    """

    domain: str = "cluster.local"
    lowest_port: int = 0
    trust_domain: str = "cluster.local"
    mtls: Literal["off", "permissive", "strict"] = "permissive"
    access: Literal["selected", "deny"] = "selected"
    outbound: Literal["allow", "refuse"] = "allow"
    certificate_seconds: int = 24 * 60 * 60


DEFAULTS = Settings()
