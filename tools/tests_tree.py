"""Fail when a module of src/headgate has no tests, tests are misplaced, or names of shared test code are not unique.

Also fails when pytest can't collect a test or a benchmark can't be imported (CONTRIBUTING.md, Tests).
"""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests_graph import LINES, PROGRAM, SOURCE, SPANNING, TESTS, TestFile, TestsGraph, lines, mirror, source_path

SHARED = {"make": "builds objects and model values for all tests"}
"""Directories of test code that several packages use."""
WITHOUT_PACKAGE = SPANNING | SHARED


def misplaced() -> Iterator[str]:
    """Yield a message for each directory or file of tests without the package or module that it should test."""
    for directory in sorted({path.parent.relative_to(TESTS) for path in TESTS.rglob("*.py")} - {Path()}):
        if directory.parts[0] not in WITHOUT_PACKAGE and not (SOURCE / directory / "__init__.py").exists():
            yield f"{TESTS / directory}: {SOURCE / directory} does not exist; move the tests to their package's directory"
    for path in sorted(TESTS.glob("test_*.py")):
        subject = SOURCE / path.name.removeprefix("test_")
        if not subject.exists():
            yield f"{path}: {subject} does not exist; move the tests to their package's directory"
    for name in sorted(WITHOUT_PACKAGE):
        if not (TESTS / name).is_dir():
            yield f"tools: {TESTS / name} does not exist; remove its line from tests_graph.py or tests_tree.py"


def untested(graph: TestsGraph) -> Iterator[str]:
    """Yield a message for each module without tests, and for each wrong line of tests/tree.toml."""
    named = lines()
    for module in graph.modules():
        path = source_path(module)
        tests = named.pop(path, [])
        if mirror(path).exists():
            if tests:
                yield f'{LINES}: remove the line of "{path}", because its tests are in {mirror(path)}'
        elif not tests:
            yield f'{SOURCE / path}: no tests; write {mirror(path)}, or add "{path}" = ["tests/..."] to {LINES} with the tests that reach it'
        for test in tests:
            yield from _wrong_test(graph, module, test)
    for path in named:
        yield f'{LINES}: remove the line of "{path}", because {SOURCE / path} does not exist'


def _wrong_test(graph: TestsGraph, module: str, test: Path) -> Iterator[str]:
    """Yield a message if a line names tests that don't exist or don't reach the module."""
    line = f'{LINES}, "{source_path(module)}": {test}'
    files = graph.named([test])
    runs_programs = test.is_dir() and test.parts[1] in PROGRAM
    if not files:
        yield f"{line} does not exist or has no tests; name the tests that replace it"
    elif not runs_programs and not graph.reaching(module, files):
        yield f"{line} imports {module} neither directly nor through other modules; name tests that do"


def builders(tests: Mapping[str, TestFile]) -> Iterator[str]:
    """Yield a message for each function that has the name of a builder of tests/make/objects.py."""
    names = {name for name in tests["tests.make.objects"].functions if not name.startswith("_")}
    for file in tests.values():
        if not file.path.is_relative_to(TESTS / "make"):
            for name in sorted(names & file.functions):
                yield f"{file.path}: use {name}() of tests/make/objects.py, or name this function for what is special about its object"


def classes(tests: Iterable[TestFile]) -> Iterator[str]:
    """Yield a message for each class `World`, and for classes of shared test code with the same name."""
    places: dict[str, list[Path]] = defaultdict(list)
    for file in tests:
        for name, line in file.classes.items():
            if name == "World":
                yield f"{file.path}:{line}: name World for what it runs, for example RunningMesh"
            elif not file.has_tests:
                places[name].append(file.path)
    for name, paths in places.items():
        if len(paths) > 1:
            yield f"{', '.join(map(str, paths))}: classes {name} with the same name; share one, or name each for what it does"


def not_importable() -> Iterator[str]:
    """Yield the messages about test files that pytest can't collect, and about benchmarks (takes 10 s)."""
    collect = ("-m", "pytest", "--collect-only", "-qq", "-p", "no:hypothesispytest")
    for words in (collect, ("-c", "import benchmarks.__main__")):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            yield f"{done.stdout[done.stdout.find('= ERRORS =') :]}{done.stderr}"


def main() -> int:
    """Check the tree; return 1 if it does not mirror the source or can't be imported, else 0."""
    graph = TestsGraph()
    messages = [
        *misplaced(),
        *untested(graph),
        *builders(graph.tests),
        *classes(graph.tests.values()),
        *not_importable(),
    ]
    print("\n".join(messages) or "tests' tree: fine")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
