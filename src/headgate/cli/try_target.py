"""The Service port to which `headgate try` sends requests."""

import ipaddress
import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec
import typer

from headgate.cli.inspect_client import InspectClient
from headgate.cli.output import usage_error
from headgate.cli.probe import Header
from headgate.cli.request_arguments import HOST, encoded_url
from headgate.cli.shares import DOMAIN
from headgate.compiler.protocols import protocol_of
from headgate.compiler.services import HEADLESS
from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client, path_of
from headgate.model.authorities import DEFAULT_NAMESPACE, DEFAULT_PORT, no_such_port, suggestion, url_host
from headgate.model.localhost_names import is_name
from headgate.resources.core.service import ServiceSpec
from headgate.resources.meta import Object, service_name
from headgate.resources.registry import SERVICE
from headgate.resources.request_spec import RequestSpec

_NAME = re.compile(r"[a-z0-9._-]+")
_BRACKETS = re.compile(r"(?:.*@)?\[[^\[\]]+\](?::[0-9]*)?")


class TriedUrl(NamedTuple):
    """Host and port of a URL; `port` is None when the URL has none. `sent` is the URL as sent to the proxy.

    `host_header` is what routes match instead of the URL's host; empty for the URL's host.
    """

    host: str
    port: int | None
    sent: str
    host_header: str = ""

    @property
    def authority(self) -> str:
        """The host and port of the URL."""
        return urlsplit(self.sent).netloc


class TryService(NamedTuple):
    """The Service (`namespace/name`) that a URL names, with its spec."""

    name: str
    spec: ServiceSpec

    @property
    def namespace(self) -> str:
        """The namespace of the Service."""
        return self.name.partition("/")[0]


class TryPort(NamedTuple):
    """An HTTP port of a Service. `address` is the Service's cluster IP, empty if it has none."""

    service: str
    port: int
    address: str


def parse_url(text: str) -> TriedUrl:
    """Parse a URL; without a scheme it is http. Raises BadParameter."""
    try:
        parts = urlsplit(encoded_url(text if "://" in text else f"http://{text}"))
    except ValueError:  # the brackets are not those of an IPv6 address
        raise _no_host(text) from None
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise usage_error(f"{text!r} has no usable port: {error}", option="URL") from error
    if parts.scheme != "http":
        raise usage_error(
            f"the scheme {parts.scheme} is not supported; write http://, because proxies add mutual TLS themselves",
            option="URL",
        )
    if port == 0:
        raise usage_error(f"{text!r} has no usable port: ports are 1 to 65535", option="URL")
    if not _is_host(parts):
        raise _no_host(text)
    authority = url_host(host) if port is None else f"{url_host(host)}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    return TriedUrl(host, port, f"http://{authority}{parts.path or '/'}{query}")


def _no_host(text: str) -> typer.BadParameter:
    return usage_error(f"{text!r} has no valid host; write for example http://website:8080/", option="URL")


def _is_host(parts: SplitResult) -> bool:
    """Return whether the host of a URL is a name, or an IPv6 address in brackets."""
    host = parts.hostname or ""
    if "[" not in parts.netloc:
        return bool(_NAME.fullmatch(host))
    if not _BRACKETS.fullmatch(parts.netloc):
        return False
    try:
        return "%" not in str(ipaddress.IPv6Address(host))  # the zone of an address has no meaning for a proxy
    except ValueError:
        return False


def _is_authority(text: str) -> bool:
    """Return whether a text is a host with or without a port, as in a Host header."""
    try:
        parts = urlsplit(f"http://{text}")
        has_port = parts.port != 0
    except ValueError:
        return False
    return parts.netloc == text and "@" not in text and not text.endswith(":") and has_port and _is_host(parts)


def with_host_header(target: TriedUrl, headers: Sequence[Header]) -> tuple[TriedUrl, tuple[Header, ...]]:
    """Move the Host header from the headers to the target, as curl does. Raises BadParameter for several and for an invalid one."""
    hosts = [value for name, value in headers if name.lower() == HOST]
    if len(hosts) > 1:
        raise usage_error("the request has several Host headers; write one", option="-H")
    for host in hosts:
        if not _is_authority(host):
            raise usage_error(
                f"{host!r} is no valid Host; write a name or an address, with or without a port from 1 to 65535",
                option="-H",
            )
        if host.lower() != target.authority:
            target = target._replace(host_header=host)
    return target, tuple((name, value) for name, value in headers if name.lower() != HOST)


async def without_localhost(inspect_client: InspectClient, target: TriedUrl) -> TriedUrl:
    """Return a target with the Service's own name instead of one below `.localhost`, which the proxy of `try` does not serve."""
    if not is_name(target.host):
        return target
    explanation = await inspect_client.explained(RequestSpec(url=target.sent))
    if not explanation.service:
        return target
    namespace, name = explanation.service.split("/")
    host, port = f"{name}.{namespace}", explanation.port
    sent = urlsplit(target.sent)._replace(netloc=f"{host}:{port}").geturl()
    return target._replace(host=host, port=port, sent=sent)


async def find_service(client: Client, target: TriedUrl, namespace: str = DEFAULT_NAMESPACE) -> TryService:
    """Return the Service of a target, for a caller in `namespace`. Raises NotFound for an unknown one."""
    is_ipv6 = ":" in target.host
    if not is_ipv6 and (name := service_name(target.host, namespace, DOMAIN)):
        service = await _service(client, *name.split("/"))
    else:
        service = await _service_with_address(client, target.host)
    if service is None:
        raise NotFound(
            f"no Service has the host {target.host}; write name.namespace, or only the name for the namespace {namespace}"
        )
    name = f"{service['metadata']['namespace']}/{service['metadata']['name']}"
    return TryService(name, msgspec.convert(service.get("spec") or {}, ServiceSpec))


async def _service(client: Client, namespace: str, name: str) -> Object | None:
    try:
        return await client.get(path_of(SERVICE, namespace, name))
    except NotFound:
        return None


async def _service_with_address(client: Client, address: str) -> Object | None:
    services, _ = await client.items(SERVICE)
    return next((service for service in services if (service.get("spec") or {}).get("clusterIP") == address), None)


def port_of(service: TryService, target: TriedUrl, *, by_address: bool) -> TryPort:
    """Return the port of a Service to which clients with the URL of a target connect.

    Without a port in the URL, it is 80. An HTTP proxy takes the first port of a Service without port 80, but clients that connect
    to the Service `by_address` do not. Raises HeadgateError for a port that is missing or not HTTP.
    """
    name, spec = service
    by_number = {tcp.port: tcp for tcp in reversed(spec.ports) if tcp.protocol == "TCP"}
    ports = sorted(by_number)
    if not ports:
        raise HeadgateError(f"Service {name} has no TCP port to send requests to; add a port to its spec.ports")
    port = target.port or (DEFAULT_PORT if by_address or DEFAULT_PORT in ports else ports[0])
    if port not in ports:
        offered = {number: protocol_of(by_number[number])[0] for number in ports}
        raise HeadgateError(no_such_port(name, port, offered) + suggestion(target.host, "http", offered))
    protocol, why, _ = protocol_of(by_number[port])
    if not protocol.is_http:
        raise HeadgateError(
            f"port {port} of Service {name} is {protocol.value}, {why}, and `try` sends only HTTP requests. Connect to "
            f"{written_address(spec, name, port)} with a client of that protocol; `kubectl describe trafficsplit` shows the shares"
        )
    return TryPort(name, port, "" if spec.cluster_ip == HEADLESS else spec.cluster_ip)


def written_address(spec: ServiceSpec, name: str, port: int) -> str:
    """Return the address to which a TCP client connects; for a Service without a cluster IP, a name for CONNECT."""
    host = spec.cluster_ip
    if not host or host == HEADLESS:
        return f"{'.'.join(reversed(name.split('/')))}:{port} by CONNECT through the HTTP proxy"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
