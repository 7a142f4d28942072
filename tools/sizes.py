"""Fail when a Python file or a function has more lines than ARCHITECTURE.md allows."""

import ast
import sys
from pathlib import Path

from syntax import statements

FILE_LINES = 400
TEST_FILE_LINES = 700
FUNCTION_LINES = 60


def oversized(path: Path) -> list[str]:
    """Return a message for each limit that a file exceeds."""
    text = path.read_text()
    limit = TEST_FILE_LINES if path.parts[0] == "tests" else FILE_LINES
    lines = text.count("\n")
    found = [f"{path}: {lines} lines, {limit} allowed"] if lines > limit else []
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                found.append(f"{path}:{node.lineno}: {node.name} has {length} lines, {FUNCTION_LINES} allowed")
    return found


def main() -> int:
    """Check all Python files; return 1 if one exceeds a limit, else 0."""
    roots = ("src", "tests", "tools", "benchmarks", "examples")
    found = [line for root in roots for path in sorted(Path(root).rglob("*.py")) for line in oversized(path)]
    print("\n".join(found) or "sizes: fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
