"""The end of the `headgate` command, which skips the interpreter's own."""

import subprocess
import sys

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
