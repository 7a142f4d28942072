"""Fail for locals and parameters below src/ whose names say nothing about what they hold: `found`, `item`, `one`, ...

A field of a class is not a local: its class says what it means.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("src/headgate")
NAMES = frozenset({"found", "item", "known", "one", "wanted"})


def empty_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each local and each parameter with an empty name."""
    fields = {
        id(field.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if name in NAMES and id(node) not in fields:
                yield node.lineno, name
            case ast.arg(arg=name) | ast.MatchAs(name=str(name)) if name in NAMES:
                yield node.lineno, name


def main() -> int:
    """Print each empty name; return 1 if there are any."""
    lines = [
        f"{path}:{number}: {name!r}: name what it holds"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, name in empty_names(ast.parse(path.read_text()))
    ]
    print("\n".join(lines) or "empty names: fine")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
