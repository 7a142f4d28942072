"""Parse the console examples of a documentation page, and run them in a shell session as a reader would.

A comment before a fenced block says how the test uses the block:

    <!-- file: split.yaml -->        the block is written to this file
    <!-- apply -->                   the block of YAML is applied with kubectl
    <!-- run: examples/canary -->    `headgate up` runs this directory, with the options after it, instead of an earlier
                                     one; `, with PAGE` adds the files of that page; `, shared` uses the mesh of all
                                     pages with this directive, which may only read it
    <!-- not run: REASON -->         the block is not run

A second comment says what a cluster does with the objects (`tests/cluster/documentation`):

    <!-- rejected: TEXT -->          the API server rejects them, and TEXT is in its answer
    <!-- reports: REASON, ... -->    headgate reports these reasons about them; without the comment, none
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self

from tests.headgate_program import write_script
from tests.waiting import until

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
READY = "headgate is up."
REQUEST_RATES = 'value: "50"', 'value: "10"'
_DIRECTIVE = re.compile(r"<!-- (file|apply|run|not run)(?:: (.*))? -->")
_EXPECTED = re.compile(r"<!-- (rejected|reports): (.*) -->")
_MASKS = (
    (re.compile(r"\b[0-9a-f]{8}\b|(?:[0-9A-F]{2}:){31}[0-9A-F]{2}"), "HEX"),
    (re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5,10}(?:-[bcdfghjklmnpqrstvwxz2456789]{5})?\b"), "-SUFFIX"),
    (re.compile(r"source \S+/env"), "source PATH/env"),
    (re.compile(r"\b\d+[smh]\b"), "AGE"),
    (re.compile(r"\d+(?:\.\d+)*"), "N"),
    (re.compile(r"[ \t]+"), " "),
)
SECONDS = 60.0
_READING = ("ca", "check", "config", "explain", "logs", "proxies", "status", "try", "wait")
"""Subcommands of headgate that read what follows a change later. The test repeats them until the output fits."""
_RETRIED = (
    *("kubectl get", "kubectl describe", "kubectl exec", "kubectl traffic", "kubectl logs", "curl"),
    *(f"headgate {word}" for word in _READING),
)


class Step(NamedTuple):
    """A command and the output that the page shows for it."""

    line: int
    command: str
    shown: tuple[str, ...]


class Block(NamedTuple):
    """A fenced block: its line, language and text, and the comments before it: a directive, and the result on a cluster."""

    line: int
    language: str
    text: str
    directive: str = ""
    argument: str = ""
    rejected: str = ""
    reports: str = ""

    def steps(self) -> Iterator[Step]:
        """Yield the commands of a console block; a backslash continues a command on the next line."""
        lines = self.text.splitlines()
        starts = [index for index, line in enumerate(lines) if line.startswith("$ ")]
        for start, end in pairwise([*starts, len(lines)]):
            last = start
            while lines[last].endswith("\\"):
                last += 1
            command = "\n".join(lines[start : last + 1]).removeprefix("$ ")
            yield Step(self.line + start + 1, command, tuple(lines[last + 1 : end]))


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    directive, opened, language, start = ("", ""), False, "", 0
    expected: dict[str, str] = {}
    content: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            if opened:
                found.append(Block(start, language, "\n".join(content) + "\n", *directive, **expected))
                directive, expected = ("", ""), {}
            opened, language, start, content = not opened, line.strip("`"), number, []
        elif opened:
            content.append(line)
        elif match := _DIRECTIVE.fullmatch(line):
            directive = match[1], match[2] or ""
        elif match := _EXPECTED.fullmatch(line):
            expected[match[1]] = match[2]
    return found


def masked(line: str) -> str:
    """Return a line with placeholders for what differs between machines and runs: numbers, ages, name suffixes, widths."""
    for pattern, word in _MASKS:
        line = pattern.sub(word, line)
    return line.strip()


def differs(shown: Sequence[str], printed: Sequence[str]) -> str:
    """Return the first shown line that differs from the output, or "".

    A line `...` matches any lines; `...` inside a line matches any text.
    """
    expected = [masked(line) for line in shown if line.strip()]
    actual = [masked(line) for line in printed if line.strip()]
    position, gap = 0, False
    for line in expected:
        if line == "...":
            gap = True
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("...")))
        fits = [index for index in range(position, len(actual)) if pattern.fullmatch(actual[index])]
        if not fits or (not gap and fits[0] != position):
            return line
        position, gap = fits[0] + 1, False
    return "" if gap or position == len(actual) else f"the end of the output before {actual[position]}"


class Session:
    """A bash session in a directory with examples/ and deploy/; use it as a context manager.

    The clients of the examples send fewer requests a second than those of a reader.
    """

    def __init__(self, directory: Path, shared: Callable[[str], Path] | None = None) -> None:
        """Prepare the directory; `shared` returns the state directory of the shared mesh that runs some manifests."""
        self._directory = directory
        self._shared = shared
        self._started: list[subprocess.Popen[str]] = []
        (directory / "deploy").symlink_to(ROOT / "deploy")
        shutil.copytree(ROOT / "examples", directory / "examples")
        for path in (directory / "examples").rglob("client.yaml"):
            path.write_text(path.read_text().replace(*REQUEST_RATES))
        programs = directory / ".bin"
        programs.mkdir()
        write_script(programs / "headgate")
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR", "USER") if name in os.environ}
        self._environ = {**kept, "PATH": f"{programs}:{BIN}:{os.environ['PATH']}", "COLUMNS": "200", "NO_COLOR": "1"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_meshes()

    def _end_meshes(self) -> None:
        for process in self._started:
            process.send_signal(signal.SIGINT)
        for process in self._started:
            process.wait(60)
        self._started.clear()

    def play(self, block: Block) -> None:
        """Write, apply or run a block. Raises AssertionError with the page's line if the output differs."""
        if block.directive == "file":
            path = self._directory / block.argument
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.directive == "apply":
            self._run("kubectl apply -f -", block.text)
        elif block.language == "console" and block.directive != "not run":
            if block.directive == "run":
                self._run_mesh(block.argument)
            for step in block.steps():
                self._step(step)

    def _run_mesh(self, argument: str) -> None:
        """Run the mesh of a directive, or use the shared one."""
        self._end_meshes()
        directory, _, more = argument.partition(", ")
        if more == "shared":
            assert self._shared
            (self._directory / ".headgate").symlink_to(self._shared(directory))
        else:
            page = more.removeprefix("with ")
            for other in blocks(ROOT / page) if page else ():
                if other.directive == "file":
                    self.play(other)
            self.up(f"headgate up {directory}")
        self._run("export KUBECONFIG=.headgate/kubeconfig")

    def _step(self, step: Step) -> None:
        command = step.command.removesuffix(" &")
        if command.startswith("headgate up"):
            log = self.up(command)
            until(lambda: self._shows(step, _started(log)), f"line {step.line}", SECONDS)
            return
        if not command.startswith(_RETRIED):
            self._shows(step, self._run(command))
            return
        until(lambda: self._shows(step, self._run(command)), f"line {step.line}", SECONDS)

    @staticmethod
    def _shows(step: Step, printed: Sequence[str]) -> bool:
        """Return True. Raises AssertionError if the output differs from the page."""
        if step.shown:
            wrong = differs(step.shown, printed)
            assert not wrong, f"line {step.line}: $ {step.command}: expected {wrong!r} in {chr(10).join(printed)}"
        return True

    def _run(self, command: str, given: str = "") -> list[str]:
        """Run a command; return its output lines. The variables that it exports stay for later commands."""
        script = f"{command}\n__code=$?\nexport -p > .environment\nexit $__code"
        before = "[ -f .environment ] && . ./.environment\nset -a\n"
        ended = subprocess.run(
            ["bash", "-c", before + script],
            cwd=self._directory,
            env=self._environ,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return ended.stdout.splitlines()

    def up(self, command: str) -> Path:
        """Start `headgate up` for the rest of the session, wait until it is ready, and return its log file."""
        log = self._directory / f"up-{len(self._started)}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self._directory, env=self._environ, stdout=output,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        self._started.append(process)

        def ready() -> bool:
            lines = log.read_text().splitlines()
            assert process.poll() is None, lines
            return READY in lines

        until(ready, command, 3 * SECONDS)
        return log


def _started(log: Path) -> list[str]:
    """Return what `headgate up` printed, without the Deployments that a start of more than 3 s waits for."""
    return [line for line in log.read_text().splitlines() if not line.startswith("Waiting for ")]
