"""Compile XBackends: servers outside the mesh that routes name as backends (GEP-4488)."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.gateway_api.server_tls import server_tls
from headgate.compiler.reasons import Reason
from headgate.compiler.references import external_service
from headgate.compiler.report import Finding
from headgate.compiler.services import name_fault
from headgate.compiler.snapshot import Snapshot
from headgate.model.edge_tls import AltName, BackendTls
from headgate.model.routing import Endpoint, Endpoints, PortRef, Protocol
from headgate.resources.core.config_map import ConfigMap
from headgate.resources.core.secret import Secret
from headgate.resources.gateway_api.backend import XBackend, XBackendTLS
from headgate.resources.meta import Key, Value

Ready = Mapping[PortRef, tuple[Endpoint, ...]]
READ = (XBackend, ConfigMap, Secret)
_FAILS = "the server gets no requests"
_PROTOCOLS = {"TCP": Protocol.TCP, "HTTP2": Protocol.HTTP2, "H2C": Protocol.HTTP2}
_USUAL_PORTS = {False: 80, True: 443}  # by whether the server is called with TLS


class ExternalBackend(Value, frozen=True, kw_only=True):
    """A server outside the mesh, as routes call it.

    `hostname` is empty if proxies may not resolve the name. Without a `protocol`, it is that of the route.
    """

    key: Key
    ref: PortRef
    hostname: str
    protocol: Protocol | None = None
    tls: BackendTls | None = None

    @property
    def fault(self) -> str:
        """The reason why the server can't be called with TLS; empty if it can."""
        return self.tls.fault if self.tls else ""

    @property
    def endpoints(self) -> Endpoints:
        """The only endpoint, a DNS name."""
        endpoint = Endpoint(address=self.hostname, port=self.ref.port, resolved=True)
        return Endpoints(ref=self.ref, ready=(endpoint,) if self.hostname else ())

    @property
    def host(self) -> str:
        """The Host header of requests, with the port unless it is the usual one."""
        is_usual = self.ref.port == _USUAL_PORTS[self.tls is not None]
        return self.hostname if is_usual else f"{self.hostname}:{self.ref.port}"


class ExternalBackends(NamedTuple):
    """All XBackends by `namespace/name`, and the findings about them."""

    by_name: Mapping[str, ExternalBackend]
    findings: tuple[Finding, ...]

    @property
    def endpoints(self) -> tuple[Endpoints, ...]:
        """The endpoints of all servers."""
        return tuple(external.endpoints for external in self.by_name.values())

    @property
    def hosts(self) -> Mapping[PortRef, str]:
        """The Host header of requests to each server."""
        return {external.ref: external.host for external in self.by_name.values() if external.hostname}


def with_externals(ready: Ready, externals: ExternalBackends) -> Ready:
    """Return ready endpoints with those of the servers outside the mesh."""
    return {**ready, **{entry.ref: entry.ready for entry in externals.endpoints}} if externals.by_name else ready


def external_backends(snapshot: Snapshot, domain: str) -> ExternalBackends:
    """Compile all XBackends; `domain` is the DNS suffix of the mesh."""
    by_name: dict[str, ExternalBackend] = {}
    findings: list[Finding] = []
    for key, backend in snapshot.of(XBackend):
        spec = backend.spec
        hostname = spec.external_hostname.hostname.lower()
        if why := name_fault("hostname", hostname, domain):
            message = f"{why}. Until then, requests to the server get 503"
            findings.append(Finding(key, Reason.NAME_NOT_RESOLVED, "spec.externalHostname.hostname", message))
            hostname = ""
        tls, faults = _tls(snapshot, key, spec.tls, hostname) if spec.tls else (None, [])
        findings += faults
        by_name[f"{key.namespace}/{key.name}"] = ExternalBackend(
            key=key,
            ref=PortRef(external_service(key), spec.port.port),
            hostname=hostname,
            protocol=_PROTOCOLS.get(spec.protocol, Protocol.HTTP) if spec.protocol else None,
            tls=tls,
        )
    return ExternalBackends(by_name, tuple(findings))


def _tls(snapshot: Snapshot, key: Key, written: XBackendTLS, hostname: str) -> tuple[BackendTls | None, list[Finding]]:
    """Return the TLS of a server; by default its certificate is for its own name, by a CA of the proxy's system."""
    if written.mode == "None":
        return None, []
    plain = BackendTls(origin=key, hostname=hostname, names=(AltName(kind="dns", value=hostname),))
    if written.mode == "ClientAndServer":
        message = f"headgate presents no certificate to servers outside the mesh, so {_FAILS}; write ServerOnly if the server needs none"
        finding = Finding(key, Reason.UNSUPPORTED_VALUE, "spec.tls.mode", message)
        return structs.replace(plain, fault=finding.reason.value), [finding]
    if written.validation is None:
        return plain, []
    return server_tls(snapshot, key, written.validation, where="spec.tls.validation", effect=_FAILS)
