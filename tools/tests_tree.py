"""Fail when the tests' tree does not mirror the packages of headgate, or pytest can't import it (CONTRIBUTING.md, Set-up)."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE, TESTS = Path("src/headgate"), Path("tests")
WITHOUT_PACKAGE = {
    "chaos": "kills processes of a running mesh",
    "cluster": "runs against a real kube-apiserver",
    "differential": "compares the model with the real Envoy",
    "docs": "runs the commands of the documents",
    "e2e": "sends real traffic through `headgate up`",
    "golden": "compares every stage between manifests and a proxy with files",
    "netns": "sends real traffic in network namespaces",
    "properties": "states what holds for every input, across packages",
}
"""Directories of tests that span packages, and what they do."""


def directories(root: Path) -> Iterator[Path]:
    """Yield the directories below a root that hold Python files, relative to it."""
    yield from sorted({path.parent.relative_to(root) for path in root.rglob("*.py")} - {Path()})


def misplaced() -> Iterator[str]:
    """Yield a line for each directory or file of tests whose subject is not in its place in the source."""
    for directory in directories(TESTS):
        if directory.parts[0] not in WITHOUT_PACKAGE and not (SOURCE / directory / "__init__.py").exists():
            yield f"{TESTS / directory}: there is no package {SOURCE / directory}; move the tests to where their subject is"
    for path in sorted(TESTS.glob("test_*.py")):
        subject = SOURCE / path.name.removeprefix("test_")
        if not subject.exists():
            yield f"{path}: there is no module {subject}; move the tests to where their subject is"
    for name in sorted(WITHOUT_PACKAGE):
        if not (TESTS / name).is_dir():
            yield f"tools/tests_tree.py: {TESTS / name} does not exist; remove its line"


def untested() -> Iterator[str]:
    """Yield a line for each package without a directory of tests."""
    for directory in directories(SOURCE):
        if (SOURCE / directory / "__init__.py").exists() and not list((TESTS / directory).rglob("test_*.py")):
            yield f"{SOURCE / directory}: there are no tests in {TESTS / directory}"


def not_importable() -> Iterator[str]:
    """Yield what pytest says of files that it can't collect; collecting all takes some seconds."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-qq"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        yield f"{done.stdout[done.stdout.find('= ERRORS =') :]}{done.stderr}"


def main() -> int:
    """Check the tree; 1 when it does not mirror the source, or can't be collected."""
    found = [*misplaced(), *untested(), *not_importable()]
    print("\n".join(found) or "tests' tree: fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
