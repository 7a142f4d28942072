"""Texts of objects and requests can't control the terminal on which a command prints them, and its end prints no warnings."""

import asyncio
import io
import logging
import sys
from collections.abc import AsyncIterable
from pathlib import Path

import grpc
import grpc.aio
import msgspec
import pytest
from rich.table import Table
from rich.text import Text
from tests.cli.conftest import ServedMesh

from headgate.cli.output import (
    EndedCalls,
    Format,
    PrintableFormatter,
    SafeConsole,
    answer,
    fail,
    note,
    print_table,
    stdout,
)
from headgate.formatting import printable
from headgate.plane.mesh_state import HostState
from headgate.resources.mesh_status import StoreState

HOSTILE = "a\x1b]0;title\x07\x1b[31m\r\x9b2J\u202eb\tc"
SHOWN = r"a\x1b]0;title\x07\x1b[31m\r\x9b2J\u202eb" + "\tc"


def test_printable_escapes_control_characters_and_nothing_else() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("ä\n日本 \U0001f600 é") == "ä\n日本 \U0001f600 é"


@pytest.mark.parametrize("print_text", [fail, note, lambda text: stdout().print(text, soft_wrap=True)])
def test_messages_are_printed_without_control_characters(
    capsys: pytest.CaptureFixture[str], print_text: "type[str]"
) -> None:
    print_text(HOSTILE.replace("\t", ""))
    captured = capsys.readouterr()
    # rich removes BEL and CR itself
    text = (captured.out + captured.err).strip().removeprefix("error: ")
    assert text.isprintable()
    assert r"\x1b[31m" in text


def test_cells_of_a_table_are_printed_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("NAME")
    table.add_row(HOSTILE)
    table.add_row(Text("\x1b[31m", style="red"))
    print_table(table)
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


def test_the_styles_of_a_command_reach_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    console = SafeConsole()
    console.print(Text("\x1b[32m", style="red"))
    assert console.file.getvalue() == "\x1b[31m\\x1b[32m\x1b[0m\n"  # type: ignore[attr-defined]


def test_json_is_the_same_value_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    answer({"text": HOSTILE}, Format.JSON)
    written = capsys.readouterr().out
    assert all(line.isprintable() for line in written.splitlines())
    assert msgspec.json.decode(written) == {"text": HOSTILE}


def test_log_messages_have_no_control_characters() -> None:
    record = logging.LogRecord("headgate", logging.WARNING, "", 1, "about %s", (HOSTILE,), None)
    assert PrintableFormatter("%(message)s").format(record) == f"about {SHOWN}"


async def test_a_message_of_the_api_is_printed_without_control_characters(served: ServedMesh) -> None:
    served.host.observed = HostState(store=StoreState(writable=False, message=HOSTILE))
    for command in ("status", "check"):
        ended = await served.run(command)
        assert r"\x1b[31m" in ended.out
        assert "\x1b" not in ended.out


class FirstWarning(logging.Handler):
    """Awaits the first warning of a logger."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.record: asyncio.Future[logging.LogRecord] = asyncio.get_running_loop().create_future()

    def emit(self, record: logging.LogRecord) -> None:
        if not self.record.done():
            self.record.set_result(record)


async def test_a_call_that_ends_after_its_server_is_no_warning(tmp_path: Path) -> None:
    """gRPC warns of it, because the event of the call can be handled later than the end of the server."""
    began, stopped, logger, first = asyncio.Event(), asyncio.Event(), logging.getLogger("grpc"), FirstWarning()

    async def late(_requests: AsyncIterable[bytes], _context: grpc.aio.ServicerContext) -> bytes:
        began.set()
        try:
            await stopped.wait()
        except asyncio.CancelledError:
            await stopped.wait()
        return b""

    server = grpc.aio.server()
    methods = {"Export": grpc.stream_unary_rpc_method_handler(late)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Reports", methods),))
    server.add_insecure_port(f"unix:{tmp_path}/server")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/server") as channel:
        call = channel.unary_unary("/Reports/Export")(b"")
        await began.wait()
        await server.stop(None)
        logger.addHandler(first)
        stopped.set()
        warning = await first.record
        logger.removeHandler(first)
        assert await call.code() == grpc.StatusCode.UNAVAILABLE
    assert "/Reports/Export" in warning.getMessage()
    assert not EndedCalls().filter(warning)
    assert EndedCalls().filter(logging.makeLogRecord({"name": "headgate.xds.server", "msg": "a proxy is late"}))
