"""Run the tests that reach a file of src/headgate: `make tests-of FILE=src/headgate/model/check.py`.

They are the tests of its mirror or of its line in tests/tree.toml, those that import the module, those that import another
module of its package which reaches it by imports within the package, and for a module of the pure core the golden cases.

Not included: tests that reach the module through other packages, by fixtures, or by a program. The tests in chaos, cluster,
differential, docs, e2e, netns and pods run headgate as a program; if a line names one of these directories, the command
that runs it is printed.
"""

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from syntax import module_name
from tests_graph import PROGRAM, SOURCE, TESTS, TestsGraph, lines, mirror

GOLDEN = TESTS / "golden/test_golden.py"
PURE = "The pure core does no input or output, reads no clock and draws no random number"


def pure_core() -> list[str]:
    """Return the packages and modules of the pure core, as import-linter's contract has them."""
    contracts = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(list(contract["source_modules"]) for contract in contracts if contract["name"] == PURE)


def tests_of(graph: TestsGraph, module: str, path: Path) -> tuple[set[Path], set[Path]]:
    """Return the files of tests that reach a module, and the directories that its line names and that run programs."""
    named = [mirror(path), *lines().get(path, ())]
    programs = {test for test in named if test.parts[1] in PROGRAM}
    tests = {file.path for file in (*graph.named(set(named) - programs), *graph.nearest(module))}
    golden = graph.tests[module_name(GOLDEN)]
    if any(f"{module}.".startswith(f"{pure}.") for pure in pure_core()) and graph.reaching(module, [golden]):
        tests.add(GOLDEN)
    return tests, programs


def main(arguments: Iterable[str]) -> int:
    """Print and run the tests that reach the given files; return pytest's exit code."""
    parser = argparse.ArgumentParser(
        prog="make tests-of FILE=", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="+", type=Path, help="a module of src/headgate")
    parser.add_argument("--list", action="store_true", help="print the tests only")
    options, pytest_options = parser.parse_known_args(list(arguments))
    graph, tests, programs = TestsGraph(), set[Path](), set[Path]()
    for file in options.file:
        if not file.is_file() or not file.is_relative_to(SOURCE):
            parser.error(f"{file} is not a module of {SOURCE}; name one, such as {SOURCE}/model/check.py")
        reached = tests_of(graph, module_name(file.relative_to(SOURCE.parent)), file.relative_to(SOURCE))
        tests, programs = tests | reached[0], programs | reached[1]
    print("\n".join(map(str, sorted(tests))), flush=True)
    for directory in sorted(programs):
        print(f'not run, because it runs headgate as a program: make test ARGS="{directory}"', flush=True)
    if options.list or not tests:
        return 0
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *pytest_options, *sorted(tests)], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
