"""The real nginx serves what was rendered."""

from pathlib import Path

from tests.differential.backends import Member, ask
from tests.ports import free_port
from tests.render.nginx.nginx_process import needs_nginx, serving
from tests.wire import Address

from headgate.model.routing import Endpoint, Endpoints, Frontend, Mesh, PortRef, Route, RouteTable, Split, Target
from headgate.render.nginx.configuration import render
from headgate.render.proxy_ports import select


@needs_nginx
async def test_nginx_sends_each_backend_exactly_its_share(tmp_path: Path) -> None:
    members = [await Member(number).start() for number in range(3)]
    port = free_port()
    old, new = PortRef("shop/web-1", port), PortRef("shop/web-2", port)
    split = Split(targets=(Target(ref=old, weight=90), Target(ref=new, weight=10)))
    ready = [Endpoint(address="127.0.0.1", port=member.port) for member in members]
    mesh = Mesh(
        domain="cluster.local",
        frontends=(Frontend(service="shop/web", ports=(port,)),),
        tables=(RouteTable(ref=PortRef("shop/web", port), routes=(Route(split=split),)),),
        endpoints=(Endpoints(ref=old, ready=(ready[0],)), Endpoints(ref=new, ready=(ready[1], ready[2]))),
    )
    async with serving(render(select(mesh)), tmp_path):
        tally = await ask(Address("127.0.0.1", port), b"GET / HTTP/1.1\r\nhost: web.shop\r\n\r\n", 200)
    assert tally.counted == {"member 0": 180, "member 1": 10, "member 2": 10}
    for member in members:
        member.close()
