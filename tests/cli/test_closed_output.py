"""A command whose reader closes the output ends as other programs do: without a message, with the code of SIGPIPE."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.headgate_program import command
from tests.make.objects import manifest, service

CLOSED = 141
HELP_OF_TRAFFIC = [sys.executable, "-m", "headgate.cli.traffic", "--help"]


def ended_without_reader(words: Sequence[str], directory: Path, *, closed: str = "stdout") -> tuple[int, bytes]:
    """Run a program in a directory, with a pipe as `closed` whose other end is closed.

    Return its exit code, and what it writes to the other stream.
    """
    reader, writer = os.pipe()
    os.close(reader)
    stdout, stderr = (writer if name == closed else subprocess.PIPE for name in ("stdout", "stderr"))
    ended = subprocess.run(words, stdout=stdout, stderr=stderr, cwd=directory, check=False)
    os.close(writer)
    return ended.returncode, ended.stderr if closed == "stdout" else ended.stdout


@pytest.mark.parametrize("words", ["--help", "--version", "compile --help", "check . -o json"])
def test_a_command_ends_without_a_message_when_its_output_is_closed(words: str, tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(manifest(service("web", 80)))
    assert ended_without_reader([*command(), *words.split()], tmp_path) == (CLOSED, b"")


@pytest.mark.parametrize("words", ["", "nosuchcommand", "--nosuchoption", "check nosuch.yaml"])
def test_a_wrong_command_ends_with_the_code_of_sigpipe_when_stderr_is_closed(words: str, tmp_path: Path) -> None:
    assert ended_without_reader([*command(), *words.split()], tmp_path, closed="stderr") == (CLOSED, b"")


def test_a_failed_command_ends_with_the_code_of_sigpipe_when_stderr_is_closed(tmp_path: Path) -> None:
    words = [*command(), "try", "http://web:80/", "--state", "nosuch"]
    assert ended_without_reader(words, tmp_path, closed="stderr") == (CLOSED, b"")


def test_kubectl_traffic_ends_without_a_message_when_its_output_is_closed(tmp_path: Path) -> None:
    assert ended_without_reader(HELP_OF_TRAFFIC, tmp_path) == (CLOSED, b"")


def test_a_command_ends_when_head_has_its_line() -> None:
    """The manifests of an installation are more than the buffer of a pipe."""
    words = shlex.join([sys.executable, "-m", "headgate", "install", "--dry-run"])
    piped = f"unset PYTHONUNBUFFERED; set -o pipefail; {words} | head -1"
    ended = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (CLOSED, "apiVersion: v1\n", "")


def test_up_stops_everything_when_head_has_its_line(tmp_path: Path) -> None:
    manifests, state = tmp_path / "manifests", tmp_path / "state"
    manifests.mkdir()
    words = [*command(), "up", str(manifests), "--state", str(state), "-o", "json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
        assert up.stdout
        assert up.stderr
        first = subprocess.run(["head", "-1"], stdin=up.stdout, capture_output=True, text=True, check=True).stdout
        up.stdout.close()
        assert '"ready":true' in first
        (manifests / "wrong.yaml").write_text("kind: {")  # the next line is about it
        assert (up.stderr.read(), up.wait()) == ("", CLOSED)
    ended = subprocess.run([*command(), "down", "--state", str(state)], capture_output=True, text=True, check=False)
    assert "stopped" not in ended.stdout
