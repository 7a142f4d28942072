"""Fail when test coverage is below its floor; `--measure` measures the coverage first (CONTRIBUTING.md, Tests).

A measurement takes minutes, so tests/coverage.json stores the result and the number of statements.
Statements added later count as not covered until the next measurement.
"""

import ast
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from syntax import statements
from tests_graph import SOURCE, TESTS
from tests_tree import WITHOUT_PACKAGE

RESULT = TESTS / "coverage.json"
DATA = Path(".coverage")
MARGIN = 3  # percentage points by which the floor is below the measured coverage
PARALLEL = ("-n", "auto", "--dist", "loadfile")
METRICS = {"lines": ("covered_lines", "num_statements"), "branches": ("covered_branches", "num_branches")}


def count_statements() -> int:
    """Return the number of statements in the source."""
    return sum(1 for path in SOURCE.rglob("*.py") for _ in statements(ast.parse(path.read_text())))


def measured_tests() -> Iterator[str]:
    """Yield the paths of tests that call the source in their own process: tests of packages, and golden cases."""
    for path in sorted(TESTS.iterdir()):
        is_directory = path.is_dir() and (path.name == "golden" or path.name not in WITHOUT_PACKAGE)
        if (is_directory and path.name != "__pycache__") or path.match("test_*.py"):
            yield str(path)


def measure() -> Mapping[str, Any]:
    """Run the tests; return coverage's JSON report. Exits with the code of a failed command."""
    DATA.mkdir(exist_ok=True)
    for arguments in (
        ["coverage", "erase"],
        ["coverage", "run", "-m", "pytest", "-q", *PARALLEL, *measured_tests()],
        ["coverage", "combine", "-q"],
        ["coverage", "json", "-q", "-o", str(DATA / "report.json")],
    ):
        if code := subprocess.run([sys.executable, "-m", *arguments], check=False).returncode:
            sys.exit(code)
    found: Mapping[str, Any] = json.loads((DATA / "report.json").read_text())
    return found


def percentages(counts: Mapping[str, int]) -> dict[str, float]:
    """Return the coverage of lines and branches in percent."""
    return {name: round(100 * counts[part] / (counts[whole] or 1), 1) for name, (part, whole) in METRICS.items()}


def table(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line of coverage for each package."""
    packages: dict[str, Counter[str]] = {}
    for name, file in report["files"].items():
        package = Path(name).relative_to(SOURCE).parent
        packages.setdefault(str(package), Counter()).update(
            {part: file["summary"][part] for parts in METRICS.values() for part in parts}
        )
    for where, counts in sorted(packages.items()):
        found = percentages(counts)
        yield f"{where:24} {found['lines']:5.1f} % of {counts['num_statements']:5} lines {found['branches']:6.1f} % of {counts['num_branches']:5} branches"


def write_result(report: Mapping[str, Any]) -> None:
    """Write the measured coverage; raise a floor that is more than `MARGIN` below the measured value."""
    found = percentages(report["totals"])
    floor = json.loads(RESULT.read_text())["floor"] if RESULT.exists() else dict.fromkeys(found, 0)
    floor = {name: max(floor[name], math.floor(value) - MARGIN) for name, value in found.items()}
    RESULT.write_text(
        json.dumps({"floor": floor, "measured": found, "statements": count_statements()}, indent=2) + "\n"
    )


def main() -> int:
    """Measure the coverage if requested, then compare; return 1 if the coverage is below the floor, else 0."""
    if "--measure" in sys.argv:
        report = measure()
        print("\n".join(table(report)))
        write_result(report)
    result = json.loads(RESULT.read_text())
    share = min(1.0, result["statements"] / count_statements())
    low = [
        f"{name}: {result['measured'][name] * share:.1f} % are covered, but the floor is {floor} %"
        for name, floor in result["floor"].items()
        if result["measured"][name] * share < floor
    ]
    print(
        "\n".join([*low, "Run `make coverage`; if the result stays below the floor, add tests."])
        if low
        else "coverage: fine"
    )
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
