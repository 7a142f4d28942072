"""Fail for locals and parameters below src/ whose names say nothing about what they hold: `found`, `item`, `one`, ...

A field of a class is not a local: its class says what it means. `ALLOWED` has the places with exceptions, each with a reason.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path("src/headgate")
NAMES = frozenset({"found", "item", "known", "one", "wanted"})
_LATER = "its locals are renamed later"
ALLOWED: Mapping[str, str] = {
    "api/inspect": _LATER,
    "cli": _LATER,
    "plane/status": _LATER,
    "resources/schema": _LATER,
}
"""Packages, by their paths below `SOURCE`, and why they may have such names."""


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
    """Print each empty name, and the exceptions without a use; return 1 if there are any."""
    lines, used = [], set[str]()
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        package = next((package for package in ALLOWED if place.startswith(f"{package}/")), "")
        for number, name in empty_names(ast.parse(path.read_text())):
            if package:
                used.add(package)
            else:
                lines.append(f"{path}:{number}: {name!r}: name what it holds")
    lines += [f"{package} has no such names now; remove it from ALLOWED" for package in ALLOWED.keys() - used]
    print("\n".join(lines) or "empty names: fine")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
