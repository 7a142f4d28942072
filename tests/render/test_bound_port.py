"""The real proxies listen on another port than clients use, as behind a Service that maps its port."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from msgspec import structs
from tests.render.haproxy import haproxy_process
from tests.render.nginx import nginx_process
from tests.render.shop import HOST, shop

from headgate.model.requests import Match, Redirect
from headgate.model.requests import Path as PathCondition
from headgate.model.routing import Route, Split
from headgate.render.haproxy.configuration import render as render_haproxy
from headgate.render.nginx.configuration import render as render_nginx
from headgate.render.output import Rendered
from headgate.render.proxy_ports import Selection, select

OLD = f"GET /old HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n".encode()
PROXIES = (
    pytest.param(render_haproxy, haproxy_process.serving, marks=haproxy_process.needs_haproxy, id="haproxy"),
    pytest.param(render_nginx, nginx_process.serving, marks=nginx_process.needs_nginx, id="nginx"),
)


@pytest.mark.parametrize(("render", "serving"), PROXIES)
async def test_a_proxy_listens_on_the_bound_port_and_redirects_to_the_port_of_clients(
    render: Callable[[Selection], Rendered],
    serving: Callable[[Rendered, Path], AbstractAsyncContextManager[int]],
    tmp_path: Path,
) -> None:
    async with shop() as web:
        moved = Route(
            match=Match(path=PathCondition(kind="exact", value="/old")),
            split=Split(targets=()),
            redirect=Redirect(hostname="new.shop"),
        )
        selection = select(web.mesh(moved, Route(split=Split(targets=(web.target(0),)))))
        ports = tuple(structs.replace(port, port=8000, bound=port.port) for port in selection.ports)
        async with serving(render(structs.replace(selection, ports=ports)), tmp_path):
            assert await web.counted(1) == {"member 0": 1}
            reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
            writer.write(OLD)
            response = (await reader.read()).decode().lower()
            writer.close()
    assert "\r\nlocation: http://new.shop:8000/old\r\n" in response
