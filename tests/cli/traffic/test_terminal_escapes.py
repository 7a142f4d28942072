"""Names and headers of requests can't control the terminal of `kubectl traffic`."""

import pytest

from headgate.cli.traffic.table import Cell, format_table
from headgate.cli.traffic.tap import _show

HOSTILE = "a\x1b[31m\x9b2J"
SHOWN = r"a\x1b[31m\x9b2J"


def test_cells_are_printed_without_control_characters() -> None:
    table = format_table(["NAME"], [[Cell(HOSTILE)], [Cell(HOSTILE, "failing")]], left=1, colors=True)
    assert table == f"NAME\n{SHOWN}\n\x1b[31m{SHOWN}\x1b[0m\n"


def test_headers_are_printed_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    peer = {"identity": "", "pod": "", "service": "", "address": "127.0.0.1"}
    event = {
        "startTime": "2026-01-01T00:00:00.000Z",
        "side": "Client",
        "source": peer,
        "destination": peer,
        "request": {"method": "GET", "path": f"/{HOSTILE}", "authority": HOSTILE, "headers": {"x": HOSTILE}},
        "response": {"status": 200, "flags": []},
        "latencyMicroseconds": None,
        "route": None,
        "access": None,
    }
    _show(event, "default", headers=True)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert f"x: {SHOWN}" in lines[1]
