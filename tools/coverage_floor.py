"""Compare the coverage of the packages' own tests with its floor; `--measure` runs them first (CONTRIBUTING.md, Coverage).

Measuring takes minutes, so its result is kept in tests/coverage.json, with the size of the source then. What was added since
counts as not covered, until it is measured.
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

from tests_tree import SOURCE, TESTS, WITHOUT_PACKAGE

KEPT = TESTS / "coverage.json"
DATA = Path(".coverage")
ROOM = 3  # percentage points between what was measured and the floor
PARALLEL = ("-n", "auto", "--dist", "loadfile")
COUNTED = {"lines": ("covered_lines", "num_statements"), "branches": ("covered_branches", "num_branches")}


def statements() -> int:
    """Count the statements of the source."""
    trees = (ast.parse(path.read_text()) for path in SOURCE.rglob("*.py"))
    return sum(isinstance(node, ast.stmt) for tree in trees for node in ast.walk(tree))


def measured_tests() -> Iterator[str]:
    """Yield the tests of the packages, and the golden cases: those that call the source in their own process."""
    for path in sorted(TESTS.iterdir()):
        is_directory = path.is_dir() and (path.name == "golden" or path.name not in WITHOUT_PACKAGE)
        if (is_directory and path.name != "__pycache__") or path.match("test_*.py"):
            yield str(path)


def measure() -> Mapping[str, Any]:
    """Run the tests and return coverage's report; end when one fails."""
    DATA.mkdir(exist_ok=True)
    for words in (
        ["coverage", "erase"],
        ["coverage", "run", "-m", "pytest", "-q", *PARALLEL, *measured_tests()],
        ["coverage", "combine", "-q"],
        ["coverage", "json", "-q", "-o", str(DATA / "report.json")],
    ):
        if code := subprocess.run([sys.executable, "-m", *words], check=False).returncode:
            sys.exit(code)
    found: Mapping[str, Any] = json.loads((DATA / "report.json").read_text())
    return found


def percentages(counts: Mapping[str, int]) -> dict[str, float]:
    """Return lines and branches in percent."""
    return {name: round(100 * counts[part] / (counts[whole] or 1), 1) for name, (part, whole) in COUNTED.items()}


def table(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each package."""
    packages: dict[str, Counter[str]] = {}
    for name, file in report["files"].items():
        package = Path(name).relative_to(SOURCE).parent
        packages.setdefault(str(package), Counter()).update(
            {part: file["summary"][part] for parts in COUNTED.values() for part in parts}
        )
    for where, counts in sorted(packages.items()):
        found = percentages(counts)
        yield f"{where:24} {found['lines']:5.1f} % of {counts['num_statements']:5} lines {found['branches']:6.1f} % of {counts['num_branches']:5} branches"


def keep(report: Mapping[str, Any]) -> None:
    """Write what was measured; raise the floor where that is more than `ROOM` above it."""
    found = percentages(report["totals"])
    floor = json.loads(KEPT.read_text())["floor"] if KEPT.exists() else dict.fromkeys(found, 0)
    floor = {name: max(floor[name], math.floor(value) - ROOM) for name, value in found.items()}
    KEPT.write_text(json.dumps({"floor": floor, "measured": found, "statements": statements()}, indent=2) + "\n")


def main() -> int:
    """Measure if that is asked, and compare; 1 below the floor."""
    if "--measure" in sys.argv:
        report = measure()
        print("\n".join(table(report)))
        keep(report)
    kept = json.loads(KEPT.read_text())
    share = min(1.0, kept["statements"] / statements())
    low = [
        f"{name}: {kept['measured'][name] * share:.1f} % are known to be covered, the floor is {floor} %"
        for name, floor in kept["floor"].items()
        if kept["measured"][name] * share < floor
    ]
    print("\n".join([*low, "Run make coverage; if it stays so, test what is new."]) if low else "coverage: fine")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
