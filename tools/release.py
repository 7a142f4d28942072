"""Build the wheel, the sdist and the chart from a clean tree into dist/, list what is in them, and check them.

The sources are those of the commit: files that git does not know can't enter. The check installs the wheel into an empty
environment and runs an example with it. `helm lint` runs where Helm exists.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
CONTENTS = "contents.txt"
EXAMPLE = "examples/canary"
READY = ("wait", "trafficsplit/website", "--timeout", "2m")
NOT_RUNNING = 3
"""The exit code of commands while no headgate runs."""
START_S = 120
STOP_S = 60


class Unfit(Exception):
    """What prevents a release."""


def main() -> int:
    """Build and check a release; return the exit code."""
    try:
        version = released_version(ROOT)
        with tempfile.TemporaryDirectory() as scratch:
            tree = checked_out(Path(scratch))
            built = build(tree, version)
            (DIST / CONTENTS).write_text("".join(f"{line}\n" for path in built for line in listed(path)))
            check(built[0], tree, Path(scratch))
    except (Unfit, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"release {version}: {', '.join(path.name for path in built)} and {CONTENTS} are in {DIST.name}/, and work")
    return 0


def released_version(root: Path) -> str:
    """Return the version, on which the package, the chart and the changelog must agree. Raises Unfit."""
    version = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    if f"\nversion: {version}\n" not in (root / "deploy/chart/Chart.yaml").read_text():
        raise Unfit(f"deploy/chart/Chart.yaml has another version than pyproject.toml, {version}: run `make chart`")
    if f"\n## {version}" not in (root / "CHANGELOG.md").read_text():
        raise Unfit(f"CHANGELOG.md has no section `## {version}`")
    return version


def checked_out(scratch: Path) -> Path:
    """Write the files of the commit into a directory, and return it. Raises Unfit when the tree has other content."""
    git = ["git", "-C", str(ROOT)]
    changes = subprocess.run([*git, "status", "--porcelain"], check=True, capture_output=True, text=True).stdout
    if changes:
        raise Unfit(f"the tree is not clean; commit or remove these files:\n{changes}")
    archive = scratch / "tree.tar"
    subprocess.run([*git, "archive", "--output", archive, "HEAD"], check=True)
    with tarfile.open(archive) as opened:
        opened.extractall(scratch / "tree", filter="data")
    return scratch / "tree"


def build(tree: Path, version: str) -> tuple[Path, ...]:
    """Build the wheel, the sdist and, where Helm exists, the chart; return their files."""
    shutil.rmtree(DIST, ignore_errors=True)
    hatch = [sys.executable, "-m", "hatchling", "build", "-d", str(DIST)]
    subprocess.run([*hatch, "-t", "sdist", "-t", "wheel"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    built: tuple[Path, ...] = DIST / f"headgate-{version}-py3-none-any.whl", DIST / f"headgate-{version}.tar.gz"
    if helm := program("helm"):
        subprocess.run([helm, "lint", "--strict", tree / "deploy/chart"], check=True)
        subprocess.run([helm, "package", "-d", DIST, tree / "deploy/chart"], check=True, stdout=subprocess.DEVNULL)
        built = *built, DIST / f"headgate-{version}.tgz"
    else:
        print("release: no Helm, so the chart is neither checked nor packaged", file=sys.stderr)
    return built


def program(name: str) -> str | None:
    """Return the path of a program of this environment, or of the PATH; None if there is none."""
    return shutil.which(name, path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))


def listed(path: Path) -> Iterator[str]:
    """Yield the digest of an archive, and a line for each file in it: its size and its name."""
    yield f"{path.name} sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    yield from (f"  {size:>9} {name}" for name, size in sorted(members(path)))


def members(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and the size of each file in an archive."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            yield from ((file.filename, file.file_size) for file in wheel.infolist())
    else:
        with tarfile.open(path) as archive:
            yield from ((file.name, file.size) for file in archive if file.isfile())


def check(wheel: Path, tree: Path, scratch: Path) -> None:
    """Install a wheel into an empty environment, and run an example with it until its split is active. Raises Unfit."""
    environment, state = scratch / "environment", scratch / "state"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [str(environment / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", str(tree / "deploy/requirements.lock")], check=True)
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    headgate = environment / "bin/headgate"
    subprocess.run([headgate, "--version"], check=True, cwd=scratch)
    with subprocess.Popen([headgate, "up", tree / EXAMPLE, "--state", state, "--ephemeral"], cwd=scratch) as running:
        try:
            code, deadline = NOT_RUNNING, time.monotonic() + START_S
            while code == NOT_RUNNING and running.poll() is None and time.monotonic() < deadline:
                time.sleep(0.2)
                code = subprocess.run([headgate, *READY, "--state", state], check=False, cwd=scratch).returncode
            if code:
                raise Unfit(f"`headgate {' '.join(READY)}` ended with exit code {code}")
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(STOP_S)
    if running.returncode:
        raise Unfit(f"`headgate up {EXAMPLE}` ended with exit code {running.returncode}")


if __name__ == "__main__":
    sys.exit(main())
