"""`headgate up --watch` on a terminal of 24 rows and 80 columns (tmux)."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.manifests import external, split_manifest
from tests.e2e.running_mesh import HEADGATE
from tests.waiting import until

TMUX = shutil.which("tmux")
pytestmark = pytest.mark.skipif(TMUX is None, reason="needs tmux")


class Terminal:
    """A new tmux server with one pane that runs a command."""

    def __init__(self, root: Path, command: str) -> None:
        self._socket = root / "tmux"
        self._tmux("new-session", "-d", "-x", "80", "-y", "24", f"{command} 2>{shlex.quote(str(root / 'stderr'))}; cat")
        self.pid = int(self._tmux("display-message", "-p", "#{pane_pid}"))

    def _tmux(self, *words: str, check: bool = True) -> str:
        command = [str(TMUX), "-f", "/dev/null", "-S", str(self._socket), *words]
        return subprocess.run(command, capture_output=True, text=True, check=check, timeout=60).stdout

    def rows(self) -> list[str]:
        return self._tmux("capture-pane", "-p").rstrip("\n").split("\n")

    def shows(self, text: str) -> bool:
        """Return whether a text is shown, on one or several rows: a path that is longer than a row is broken anywhere."""
        return "".join(text.split()) in "".join("".join(self.rows()).split())

    def headers(self) -> int:
        return len([row for row in self.rows() if row.startswith("SPLIT")])

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def close(self) -> None:
        self._tmux("kill-server", check=False)  # fails if the command has ended, as the server then ends too


@pytest.fixture
def show(tmp_path: Path) -> Iterator[Callable[[Path], Terminal]]:
    """Return a function that runs `up --watch` on a directory until the test ends."""
    state, opened = tmp_path / "state", []

    def run(directory: Path) -> Terminal:
        command = shlex.join([HEADGATE, "up", str(directory), "--state", str(state), "--watch"])
        opened.append(Terminal(tmp_path, command))
        return opened[0]

    yield run
    for terminal in opened:
        terminal.press("C-c")
        until(lambda: not _is_locked(state))
        terminal.close()


def _is_locked(state: Path) -> bool:
    done = subprocess.run(["flock", "--nonblock", state / "lock", "true"], check=False)
    return done.returncode != 0


def test_the_table_fits_the_terminal_and_is_updated_after_invalid_changes_and_deletions(
    show: Callable[[Path], Terminal], tmp_path: Path
) -> None:
    directory = tmp_path / "m"
    directory.mkdir()
    names = [f"website-{number}" for number in range(14)]
    for name in names:
        parts = (external(name), external(f"{name}-v1"), split_manifest(name, name, {f"{name}-v1": 1}))
        (directory / f"{name}.yaml").write_text("\n---\n".join(parts))
    terminal = show(directory)

    def all_have_addresses() -> bool:
        shown = {words[0]: words[1] for row in terminal.rows() if len(words := row.split()) > 1}
        return all(re.fullmatch(r"127\.[0-9.]+:8080", shown[f"default/{name}"]) for name in names)

    until(all_have_addresses)
    until(lambda: terminal.headers() == 1)  # a capture may show a table that is half drawn

    (directory / "broken.yaml").write_text(split_manifest("broken", "website-0", {"website-0-v1": -1}))
    wrong = "broken.yaml:1:"
    until(lambda: terminal.shows("must be 0 or more, not -1") and terminal.shows(wrong))
    (directory / "website-13.yaml").unlink()  # the message stays after an unrelated edit
    until(
        lambda: not any(row.startswith("default/website-13") for row in terminal.rows())
    )  # ignore a message below the table that still names website-13
    until(lambda: terminal.shows("must be 0 or more, not -1"))
    (directory / "broken.yaml").unlink()
    until(lambda: not terminal.shows("must be 0 or more") and terminal.shows("All files are valid again."))
    until(lambda: terminal.headers() == 1)


def test_a_stopped_headgate_leaves_the_last_table_on_the_terminal(
    show: Callable[[Path], Terminal], tmp_path: Path
) -> None:
    directory = tmp_path / "m"
    directory.mkdir()
    parts = (external("web"), external("web-v1"), split_manifest("web", "web", {"web-v1": 1}))
    (directory / "web.yaml").write_text("\n---\n".join(parts))
    terminal = show(directory)
    until(lambda: terminal.shows("default/web port 8080") and terminal.shows("OBSERVED"))
    terminal.press("C-c")
    until(lambda: terminal.shows("headgate is up.") and terminal.shows("default/web-v1"))
    until(lambda: terminal.headers() == 1)


def test_a_deleted_split_is_not_reported_as_resolved(show: Callable[[Path], Terminal], tmp_path: Path) -> None:
    directory = tmp_path / "m"
    directory.mkdir()
    services = "\n---\n".join(map(external, ("website", "blog", "blog-v1")))
    (directory / "services.yaml").write_text(services)
    (directory / "website.yaml").write_text(split_manifest("website", "website", {"missing": 1}))
    terminal = show(directory)
    until(lambda: terminal.shows("BackendNotFound: Service default/missing not found"))
    (directory / "website.yaml").unlink()
    until(lambda: terminal.shows("TrafficSplit default/website removed"))
    (directory / "blog.yaml").write_text(split_manifest("blog", "blog", {"blog-v1": 1, "absent": 1}))
    until(lambda: terminal.shows("BackendNotFound: Service default/absent not found"))
    (directory / "blog.yaml").write_text(split_manifest("blog", "blog", {"blog-v1": 1}))
    until(lambda: terminal.shows("TrafficSplit default/blog: spec.backends[1].service: the edit resolved"))
    assert not terminal.shows("TrafficSplit default/website: ")
