"""A reload breaks no connection: the old worker answers on open connections, the new one takes all new connections."""

import asyncio
from pathlib import Path

from tests.differential.backends import head_of
from tests.render.haproxy.haproxy_process import needs_haproxy, serving
from tests.render.shop import HOST, shop

from headgate.proxy_programs.files import write_files
from headgate.proxy_programs.haproxy import Haproxy
from headgate.proxy_programs.programs import find_program
from headgate.render.haproxy.configuration import render
from headgate.render.proxy_ports import select

REQUEST = f"GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()
DEADLINE_S = 60.0


@needs_haproxy
async def test_an_open_connection_gets_its_next_response_from_the_old_worker_and_then_closes(tmp_path: Path) -> None:
    async with shop() as web, serving(render(select(web.divided(web.target(0)))), tmp_path):
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        for reloaded in (False, True):
            if reloaded:
                write_files(render(select(web.divided(web.target(1)))), tmp_path)
                assert not Haproxy(find_program("haproxy")).reload(tmp_path)
                async with asyncio.timeout(DEADLINE_S):
                    while await web.counted(1) != {"member 1": 1}:
                        pass  # the old worker accepts connections until the new one listens
            writer.write(REQUEST)
            answer = head_of(await reader.readuntil(b"\r\n\r\n"))
            assert answer.get("x-backend") == "0"
            assert (answer.get("connection") == "close") == reloaded
        assert await reader.read() == b""
        writer.close()
