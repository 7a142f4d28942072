"""Fail when a file of Python, JavaScript or CSS, or a Python function, has more lines than ARCHITECTURE.md allows.

Biome limits the functions of JavaScript (tools/page/biome.json).
"""

import ast
import sys
from pathlib import Path

from syntax import statements

FILE_LINES = 400
TEST_FILE_LINES = 700
FUNCTION_LINES = 60
SUFFIXES = (".py", ".js", ".css")
FOREIGN = frozenset({"vendor", "node_modules"})
"""Directories with files of other projects."""


def oversized(path: Path) -> list[str]:
    """Return a message for each limit that a file exceeds."""
    text = path.read_text()
    limit = TEST_FILE_LINES if path.parts[0] == "tests" else FILE_LINES
    lines = text.count("\n")
    found = [f"{path}: {lines} lines, {limit} allowed"] if lines > limit else []
    for node in statements(ast.parse(text)) if path.suffix == ".py" else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                found.append(f"{path}:{node.lineno}: {node.name} has {length} lines, {FUNCTION_LINES} allowed")
    return found


def main() -> int:
    """Check all files; return 1 if one exceeds a limit, else 0."""
    roots = ("src", "tests", "tools", "benchmarks", "examples")
    paths = [path for root in roots for path in sorted(Path(root).rglob("*")) if path.suffix in SUFFIXES]
    excesses = [line for path in paths if FOREIGN.isdisjoint(path.parts) for line in oversized(path)]
    print("\n".join(excesses) or "sizes: fine")
    return 1 if excesses else 0


if __name__ == "__main__":
    sys.exit(main())
