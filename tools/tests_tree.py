"""Fail when tests/ does not mirror src/headgate, or a test or a benchmark can't be imported (CONTRIBUTING.md, Set-up)."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE, TESTS = Path("src/headgate"), Path("tests")
WITHOUT_PACKAGE = {
    "chaos": "kills processes of a running mesh",
    "cluster": "runs against a real kube-apiserver",
    "differential": "compares the model with the real Envoy",
    "docs": "runs the examples of the documentation",
    "e2e": "sends real traffic through `headgate up`",
    "golden": "compares the result of every stage from manifests to proxies with files",
    "make": "builds objects and model values for all tests",
    "netns": "sends real traffic in network namespaces",
    "pods": "sends real traffic between pods of a Kubernetes cluster",
    "properties": "tests properties of generated inputs across packages",
}
"""Directories of tests that span several packages, and what these tests do."""


def directories(root: Path) -> Iterator[Path]:
    """Yield the directories below `root` that contain Python files, relative to it."""
    yield from sorted({path.parent.relative_to(root) for path in root.rglob("*.py")} - {Path()})


def misplaced() -> Iterator[str]:
    """Yield a message for each directory or file of tests without the package or module that it should test."""
    for directory in directories(TESTS):
        if directory.parts[0] not in WITHOUT_PACKAGE and not (SOURCE / directory / "__init__.py").exists():
            yield f"{TESTS / directory}: {SOURCE / directory} does not exist; move the tests to their package's directory"
    for path in sorted(TESTS.glob("test_*.py")):
        subject = SOURCE / path.name.removeprefix("test_")
        if not subject.exists():
            yield f"{path}: {subject} does not exist; move the tests to their package's directory"
    for name in sorted(WITHOUT_PACKAGE):
        if not (TESTS / name).is_dir():
            yield f"tools/tests_tree.py: {TESTS / name} does not exist; remove its line"


def untested() -> Iterator[str]:
    """Yield a message for each package without tests."""
    for directory in directories(SOURCE):
        if (SOURCE / directory / "__init__.py").exists() and not list((TESTS / directory).rglob("test_*.py")):
            yield f"{SOURCE / directory}: {TESTS / directory} has no tests; add some"


def not_importable() -> Iterator[str]:
    """Yield the messages about test files that pytest can't import, and about benchmarks (takes some seconds)."""
    for words in (("-m", "pytest", "--collect-only", "-qq"), ("-c", "import benchmarks.run")):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            yield f"{done.stdout[done.stdout.find('= ERRORS =') :]}{done.stderr}"


def main() -> int:
    """Check the tree; return 1 if it does not mirror the source or can't be imported, else 0."""
    found = [*misplaced(), *untested(), *not_importable()]
    print("\n".join(found) or "tests' tree: fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
