"""Manifests that another program generates: those of a kustomization (kubectl) and of a chart (Helm)."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_CHART = "Chart.yaml"
_LONGEST_S = 60
_DOCUMENTS = re.compile(r"^---", re.MULTILINE)
_HOOKS = re.compile(r"""^    ["']?helm\.sh/hook["']?:\s*["']?([a-z, -]+)""", re.MULTILINE)
_INSTALLED = frozenset({"pre-install", "post-install", "crd-install"})
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")


class Generated(NamedTuple):
    """The generated text, or the problem for which there is none."""

    text: str = ""
    problem: str = ""


def generates(directory: Path) -> bool:
    """Return whether a directory is a kustomization or a chart, so that its files are not manifests themselves."""
    return any((directory / name).is_file() for name in (*_KUSTOMIZATIONS, _CHART))


def generated(directory: Path) -> Generated:
    """Return the manifests of a directory that is a kustomization or a chart."""
    if (directory / _CHART).is_file():
        name = _NOT_IN_NAMES.sub("-", directory.resolve().name.lower()).strip("-") or "release"
        # as `helm install`, which creates the definitions and runs no tests
        command = ["helm", "template", name, str(directory), "--include-crds", "--skip-tests"]
        rendered = _output(command, "a chart")
        return rendered._replace(text="---".join(filter(_is_installed, _DOCUMENTS.split(rendered.text))))
    return _output(["kubectl", "kustomize", str(directory)], "a kustomization")


def _is_installed(document: str) -> bool:
    """Return whether `helm install` applies a document: no hook, or one of an installation, unlike a Job before a deletion."""
    hook = _HOOKS.search(document)
    return hook is None or bool(_INSTALLED.intersection(hook[1].replace(" ", "").split(",")))


def _output(command: Sequence[str], what: str) -> Generated:
    beside = str(Path(sys.executable).parent)
    program = shutil.which(command[0], path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    typed = shlex.join(command)
    if program is None:
        return Generated(
            problem=f"is {what}, and this machine has no {command[0]}: install it, or run `{typed}` where it is and pass "
            "the output with `-`"
        )
    try:
        done = subprocess.run(  # noqa: S603 - the program is the user's own, its arguments are a path
            [program, *command[1:]],
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        return Generated(problem=f"is {what}, and `{typed}` failed: {error}")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["without a message"]
        return Generated(problem=f"is {what}, and `{typed}` failed: {lines[-1].removeprefix('error: ').strip()}")
    return Generated(text=done.stdout)
