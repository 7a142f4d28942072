"""The help page of every command: at most 80 columns, with an example that works and all exit codes."""

import re
import shlex
from collections.abc import Callable

import pytest
from tests.cli.test_common_options import EVERY, WITHOUT_API
from tests.processes import Ran
from typer.testing import CliRunner

from headgate.cli.app import app
from headgate.cli.commands import COMMANDS
from headgate.cli.traffic.app import app as traffic

VISIBLE = [name for name in EVERY if name != "headgate control-plane"]
NO_API = WITHOUT_API | {"headgate down", "headgate version", "kubectl traffic version"}
_CODE = re.compile(r"^  (\d+) +\S", re.MULTILINE)


def help_page(name: str) -> str:
    """Return the help page of a command on a terminal of 80 columns."""
    program, words = (traffic, name.split()[2:]) if name.startswith("kubectl") else (app, name.split()[1:])
    prog_name = "kubectl traffic" if name.startswith("kubectl") else "headgate"
    result = CliRunner(env={"COLUMNS": "80"}).invoke(program, [*words, "--help"], prog_name=prog_name)
    assert result.exit_code == 0
    return str(result.stdout)


@pytest.mark.parametrize("name", ["headgate", "kubectl traffic", *EVERY])
def test_a_help_page_fits_80_columns(name: str) -> None:
    assert [line for line in help_page(name).splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", VISIBLE)
def test_a_help_page_has_an_example_that_the_command_accepts(name: str) -> None:
    page = help_page(name)
    section = re.search(r"^Examples?:\n((?:  .+\n)+)", page, re.MULTILINE)
    assert section, page
    for line in section[1].splitlines():
        example = next(part.strip() for part in line.partition(" > ")[0].split(" | ") if name in part)
        words = shlex.split(example.removeprefix(name))
        EVERY[name].make_context(name, words)


@pytest.mark.parametrize("name", VISIBLE)
def test_a_help_page_has_the_exit_codes_of_the_command(name: str) -> None:
    codes = set(map(int, _CODE.findall(help_page(name).partition("Exit codes:\n")[2])))
    assert codes >= {0, 1, 2, 130}
    assert (3 in codes) is (name not in NO_API)
    has_timeout = any("--timeout" in parameter.opts for parameter in EVERY[name].params) and name != "headgate try"
    assert (124 in codes) is (has_timeout or name == "headgate run")


def test_the_list_of_commands_has_every_command_in_its_group(run: Callable[..., Ran]) -> None:
    listed: dict[str, list[str]] = {}
    title, page = "", run("--help").out
    assert all((command.summary in page) is bool(command.group) for command in COMMANDS.values())
    assert set(map(int, _CODE.findall(page))) == {0, 1, 2, 3, 4, 124, 126, 127, 130}
    for line in page.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            title = line.removesuffix(":")
        elif match := re.match(r"  ([a-z-]+)  ", line):
            listed.setdefault(title, []).append(match[1])
    groups: dict[str, list[str]] = {}
    for name, command in COMMANDS.items():
        if command.group:
            groups.setdefault(command.group, []).append(name)
    assert {group: names for group, names in listed.items() if group in groups} == groups
    assert all(1 < len(names) < 10 for names in groups.values())
