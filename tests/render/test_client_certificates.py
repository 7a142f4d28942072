"""HAProxy and nginx accept the clients of a Gateway that Envoy accepts: those with a certificate of its authorities."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.authority import Authority
from tests.make.objects import config_map, gateway, listener
from tests.make.server_certificates import PAIRS, secret
from tests.make.values import compiled
from tests.ports import free_port
from tests.render.haproxy import haproxy_process
from tests.render.nginx import nginx_process

from headgate.model.identities import Credential
from headgate.render.haproxy.configuration import render as render_haproxy
from headgate.render.nginx.configuration import render as render_nginx
from headgate.render.output import Rendered
from headgate.render.proxy_ports import Chosen, Selection, select

Serving: TypeAlias = Callable[[Rendered, Path], AbstractAsyncContextManager[int]]
EMPLOYEES, PARTNERS = Authority("employees"), Authority("partners")
CLIENTS = {"employee": EMPLOYEES.issue("", "a.example"), "partner": PARTNERS.issue("", "b.example"), "none": None}
NOT_FOUND, REFUSED = "404", "refused"


def edge(port: int, mode: str) -> Selection:
    """Return a Gateway without routes that requests certificates of employees."""
    refs = [{"group": "", "kind": "ConfigMap", "name": "ca"}]
    tls = {"frontend": {"default": {"validation": {"caCertificateRefs": refs, "mode": mode}}}}
    https = listener(port, "https", protocol="HTTPS", tls={"certificateRefs": [{"name": "server"}]})
    result = compiled(
        gateway("edge", https, tls=tls, status={"addresses": [{"value": "127.0.0.1"}]}),
        secret("server", PAIRS["P-256"]),
        config_map("ca", {"ca.crt": EMPLOYEES.pem}),
    )
    return select(result.mesh, Chosen(address="127.0.0.1"))


async def status(port: int, client: Credential | None, directory: Path) -> str:
    """Return the status of a request without a route; `refused` without a valid certificate (nginx answers 400)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if client:
        file = directory / "client.pem"
        file.write_text(client.chain + client.key.reveal())
        context.load_cert_chain(file)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="edge.example")
        writer.write(b"GET / HTTP/1.1\r\nhost: edge.example\r\nconnection: close\r\n\r\n")
        head = await reader.read()
    except OSError:
        return REFUSED
    writer.close()
    answered = head.split()[1].decode() if head else REFUSED
    return REFUSED if answered == "400" else answered


@pytest.mark.parametrize(
    ("render", "serving"),
    [
        pytest.param(render_haproxy, haproxy_process.serving, id="haproxy", marks=haproxy_process.needs_haproxy),
        pytest.param(render_nginx, nginx_process.serving, id="nginx", marks=nginx_process.needs_nginx),
    ],
)
@pytest.mark.parametrize("mode", ["AllowValidOnly", "AllowInsecureFallback"])
async def test_the_proxy_accepts_the_clients_that_envoy_accepts(
    tmp_path: Path, render: Callable[[Selection], Rendered], serving: Serving, mode: str
) -> None:
    port = free_port()
    rendered = render(edge(port, mode))
    assert not rendered.omissions
    async with serving(rendered, tmp_path):
        answers = {name: await status(port, client, tmp_path) for name, client in CLIENTS.items()}
    fallback = NOT_FOUND if mode == "AllowInsecureFallback" else REFUSED
    assert answers == {"employee": NOT_FOUND, "partner": fallback, "none": fallback}
