"""The end of the `headgate` command, which skips the interpreter's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENDING = """
import atexit, os, sys
from headgate import cli

atexit.register(print, "exit function")
sys.argv = ["headgate", *sys.argv[1:]]
if sys.argv[-1] == "closed":
    sys.argv.pop()
    sys.stdout = None
cli.main()
"""


@pytest.mark.parametrize(
    ("words", "code", "last"),
    [
        (["version", "--help"], 0, "exit function"),
        (["unknown"], 2, "exit function"),
        (["unknown", "closed"], 2, ""),
    ],
    ids=["success", "error", "closed output"],
)
def test_a_command_ends_with_its_output_its_exit_functions_and_its_code(words: list[str], code: int, last: str) -> None:
    ended = subprocess.run([sys.executable, "-c", ENDING, *words], capture_output=True, check=False, text=True)
    assert ended.returncode == code
    assert ended.stdout.strip().endswith(last)
    assert bool(ended.stderr) is bool(code)
    assert "Traceback" not in ended.stderr


def test_a_command_whose_output_can_not_be_written_ends_as_the_interpreter_does() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", ENDING, "version", "--help"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, text=True, env=environment)
    assert ended.returncode == 120
    assert "No space left on device" in ended.stderr
