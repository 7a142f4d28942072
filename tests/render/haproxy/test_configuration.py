"""HAProxy serves what was rendered; golden files show it. `pytest tests/render --update-golden` writes them."""

import asyncio
from pathlib import Path

import pytest
from tests.authority import Authority
from tests.differential.http_exchange import Message, exchange
from tests.render.golden_cases import OWN_CASES, all_meshes, selection
from tests.render.haproxy.haproxy_process import check, needs_haproxy, serving
from tests.render.shop import HOST, shop
from tests.stream_server import stream_server
from tests.wire import Address

from headgate.model.identities import PrivateText
from headgate.model.requests import Filters, HeaderEdit, Timeouts
from headgate.model.routing import Protocol, Route, Split
from headgate.proxy_programs.files import write_files
from headgate.render.haproxy.configuration import MAIN, render
from headgate.render.nginx.configuration import render as render_nginx
from headgate.render.omissions import OmissionReason
from headgate.render.output import Rendered
from headgate.render.proxy_ports import select
from headgate.resources.meta import Key

UPGRADE = f"GET / HTTP/1.1\r\nhost: {HOST}\r\nconnection: upgrade\r\nupgrade: %s\r\n%s\r\n"
KEY = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"


def with_real_certificates(rendered: Rendered) -> Rendered:
    """Return files whose certificates HAProxy can load; the golden cases have words in their place."""
    shown = Authority().issue("", "shop.example")
    pem = PrivateText(shown.chain + shown.key.reveal())
    files = {name: pem if isinstance(text, PrivateText) else text for name, text in rendered.files.items()}
    return Rendered(main=rendered.main, files=files)


@pytest.mark.parametrize("case", OWN_CASES, ids=lambda case: case.stem)
def test_the_rendered_configuration_is_that_of_the_golden_file(case: Path, pytestconfig: pytest.Config) -> None:
    text, path = render(selection(case)).files[MAIN], Path(__file__).parent / f"{case.stem}.cfg"
    if pytestconfig.getoption("--update-golden"):
        path.write_text(text)
    assert path.read_text() == text, f"{path} differs; if the change is intended, run make golden and read the diff"


@needs_haproxy
def test_haproxy_accepts_what_is_rendered_for_every_golden_case_without_a_warning(tmp_path: Path) -> None:
    wrong = {}
    for name, mesh in all_meshes().items():
        selected, directory = select(mesh), tmp_path / name
        directory.mkdir()
        write_files(with_real_certificates(render(selected)), directory)
        if selected.ports and (messages := check(directory)):
            wrong[name] = messages
    assert wrong == {}


@needs_haproxy
async def test_backends_get_the_http_version_of_the_client(tmp_path: Path) -> None:
    async with shop() as web:
        both = (web.target(0, protocol=Protocol.HTTP_ANY), web.target(1, protocol=Protocol.HTTP_ANY))
        async with serving(render(select(web.divided(*both))), tmp_path):
            for version in ("1.1", "2", "2", "1.1"):
                await exchange(Address("127.0.0.1", web.port), Message(version, "GET", "/", HOST, ()))
        assert [(member.requests, len(member.heads)) for member in web.members] == [(2, 1), (2, 1), (0, 0)]


@needs_haproxy
async def test_only_upgrades_to_websocket_reach_a_backend(tmp_path: Path) -> None:
    async with shop() as web:
        async with serving(render(select(web.divided(web.target(0)))), tmp_path):
            assert await web.counted(1, head=(UPGRADE % ("websocket", KEY)).encode()) == {"member 0": 1}
            assert await web.counted(1, head=(UPGRADE % ("other", "")).encode()) == {"member 0": 1}
        assert [head.get("upgrade") for head in web.members[0].heads] == ["websocket", ""]


@needs_haproxy
async def test_a_backend_that_does_not_answer_in_time_gets_504_and_the_difference_is_named(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with shop() as web, stream_server(silent) as server:
        web.members[0].port = server.sockets[0].getsockname()[1]
        limits = Timeouts(request=20_000, backend=50)
        mesh = web.mesh(Route(split=Split(targets=(web.target(0),)), timeouts=limits))
        rendered = render(select(mesh))
        assert [item.reason for item in rendered.omissions] == [OmissionReason.TIMEOUT]
        async with serving(rendered, tmp_path):
            assert await web.counted(1) == {504: 1}


@needs_haproxy
async def test_texts_of_users_cannot_end_a_line_or_begin_a_sample(tmp_path: Path) -> None:
    values = ("%[src] 'a' \"b\" \\1 # {c} $HOME", "")
    edit = HeaderEdit(set=tuple((f"x-{number}", value) for number, value in enumerate(values)))
    async with shop() as web:
        origin = Key("split.smi-spec.io", "TrafficSplit", "shop", "web")
        named = {"origin": origin, "name": "group/a\n    injected"}
        mesh = web.mesh(Route(split=Split(targets=(web.target(0),)), filters=Filters(request=edit), **named))
        rendered = render(select(mesh))
        assert not rendered.omissions
        assert "\n    injected" not in rendered.files[MAIN]
        broken = HeaderEdit(set=(("x-0", "a\n    injected"),))  # a route with this value is not accepted
        unsafe = web.mesh(Route(split=Split(targets=(web.target(0),)), filters=Filters(request=broken)))
        for render_unsafe in (render, render_nginx):
            with pytest.raises(ValueError, match=r"line break|control character"):
                render_unsafe(select(unsafe))
        async with serving(rendered, tmp_path):
            await web.counted(1)
        head = web.members[0].heads[0]
    assert [head.get(f"x-{number}") for number in range(2)] == list(values)
