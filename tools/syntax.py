"""Read the statements and imports of Python files, for the checks of `make check`."""

import ast
from collections.abc import Iterator
from pathlib import Path


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a tree. `ast.walk`, which visits their expressions too, takes five times as long."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from statements(node)


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a file imports. `from a import b` yields `a` and `a.b`, which may be a module or a name."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_name(path: Path) -> str:
    """Return the name by which a file is imported: `a/b.py` and `a/b/__init__.py` are `a.b`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
