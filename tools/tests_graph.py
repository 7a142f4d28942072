"""Find the tests that reach a module of the source, by names of files, by imports, and by lines of tests/tree.toml.

A module `a/b.py` has its tests in the mirror, `tests/a/test_b.py`, or in the files and directories that its line in
tests/tree.toml names. `tests_tree` checks this; `tests_of` runs the tests.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import grimp

from syntax import imported, module_name

SOURCE, TESTS = Path("src/headgate"), Path("tests")
LINES = TESTS / "tree.toml"
SPANNING = {
    "chaos": "kills processes of a running mesh",
    "cluster": "runs against a real kube-apiserver",
    "differential": "compares the model with the real Envoy",
    "docs": "runs the examples of the documentation",
    "e2e": "sends real traffic through `headgate up`",
    "golden": "compares the result of every stage from manifests to proxies with files",
    "netns": "sends real traffic in network namespaces",
    "pods": "sends real traffic between pods of a Kubernetes cluster",
    "properties": "tests properties of generated inputs across packages",
}
"""Directories of tests that span several packages, and what these tests do."""
PROGRAM = frozenset(SPANNING) - {"golden", "properties"}
"""Those of them that run headgate and Envoy as programs: their imports don't show which modules they reach."""
COMMANDS = "headgate.cli.app"  # imports the module of a command by its name, which its imports don't show


@dataclass(frozen=True)
class TestFile:
    """What a Python file below tests/ imports and defines."""

    path: Path
    imports: frozenset[str]  # modules, and names that it imports from modules
    functions: frozenset[str]  # of the module, without fixtures
    classes: Mapping[str, int]  # of the module, with their lines

    @property
    def has_tests(self) -> bool:
        """Return whether pytest collects the file, rather than other tests import it."""
        return self.path.name.startswith("test_")


def read_test_file(path: Path) -> TestFile:
    """Read a file below tests/."""
    tree = ast.parse(path.read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return TestFile(
        path,
        frozenset(imported(tree)),
        frozenset(node.name for node in functions if not any("fixture" in ast.unparse(d) for d in node.decorator_list)),
        {node.name: node.lineno for node in tree.body if isinstance(node, ast.ClassDef)},
    )


def source_path(module: str) -> Path:
    """Return the file of a module, relative to the source: `headgate.a.b` is `a/b.py`."""
    return Path(*module.split(".")[1:]).with_suffix(".py")


def mirror(path: Path) -> Path:
    """Return the file that has the tests of the module at a path, if it needs no line."""
    return TESTS / path.parent / f"test_{path.name}"


def lines() -> dict[Path, list[Path]]:
    """Return the lines of tests/tree.toml: the tests of modules without a mirror, by their paths."""
    return {Path(path): [Path(name) for name in names] for path, names in tomllib.loads(LINES.read_text()).items()}


class TestsGraph:
    """The imports of the source, and of the tests."""

    def __init__(self) -> None:
        graph = grimp.build_graph("headgate", cache_dir=None)
        for command in graph.find_children("headgate.cli"):
            graph.add_import(importer=COMMANDS, imported=command)
        self._importers = {module: graph.find_modules_that_directly_import(module) for module in graph.modules}
        self.tests = {module_name(path): read_test_file(path) for path in sorted(TESTS.rglob("*.py"))}
        self._below: dict[Path, list[TestFile]] = {}
        for file in self.tests.values():
            for place in (file.path, *file.path.parents) if file.has_tests else ():
                self._below.setdefault(place, []).append(file)
        self._shared: dict[Path, frozenset[str]] = {}

    def modules(self) -> Iterator[str]:
        """Yield the modules of the source, without the `__init__.py` of packages."""
        for module in sorted(self._importers.keys() - {"headgate"}):
            if (SOURCE / source_path(module)).exists():
                yield module

    def importers(self, module: str, *, within: str) -> frozenset[str]:
        """Return a module and all modules below `within` that reach it by imports below `within`."""
        reached, new = {module}, [module]
        while new:
            for importer in self._importers[new.pop()]:
                if importer not in reached and f"{importer}.".startswith(f"{within}."):
                    reached.add(importer)
                    new.append(importer)
        return frozenset(reached)

    def imports_of(self, file: TestFile) -> frozenset[str]:
        """Return what a file imports: itself, through shared test code, and by the fixtures of its directories."""
        if (imports := self._shared.get(file.path)) is None:
            directories = [directory for directory in file.path.parents if directory.is_relative_to(TESTS)][:-1]
            conftests = (module_name(directory / "conftest.py") for directory in directories)
            imports, new = frozenset(), [file, *(self.tests[name] for name in conftests if name in self.tests)]
            while new:
                added = new.pop().imports - imports
                imports |= added
                new += [self.tests[name] for name in added if name in self.tests]
            self._shared[file.path] = imports
        return imports

    def reaching(self, module: str, files: Iterable[TestFile]) -> list[TestFile]:
        """Return those of `files` that reach a module by any imports."""
        importers = self.importers(module, within="headgate")
        return [file for file in files if not importers.isdisjoint(self.imports_of(file))]

    def nearest(self, module: str) -> list[TestFile]:
        """Return the files of tests that import a module, or import one of its package that reaches it within the package."""
        importers = self.importers(module, within=".".join(module.split(".")[:2]))
        files = (file for file in self.tests.values() if file.has_tests and file.path.parts[1] not in PROGRAM)
        return [file for file in files if not importers.isdisjoint(file.imports)]

    def named(self, tests: Iterable[Path]) -> list[TestFile]:
        """Return the files of tests that a line names, itself or by their directory."""
        return [file for test in tests for file in self._below.get(test, ())]
