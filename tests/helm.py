"""Finds Helm: `make` installs it with tools/helm.py."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHART = Path(__file__).parent.parent / "deploy/chart"


def helm_program() -> str:
    """Return the path of Helm; skip the test if there is none."""
    installed = Path(sys.executable).parent / "helm"
    found = str(installed) if installed.exists() else shutil.which("helm")
    if not found:
        pytest.skip("helm is neither in .venv nor on the PATH; `python tools/helm.py` installs it")
    return found


def helm(*arguments: object, fails: bool = False) -> str:
    """Run Helm; return its output, or its error message if it must fail."""
    command = [helm_program(), *(str(word) for word in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode != 0) is fails, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stderr if fails else done.stdout
