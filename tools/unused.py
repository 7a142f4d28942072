"""Report public functions, classes, methods and constants of src/headgate that nothing in src/headgate uses."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("src/headgate")
CALLED_BY_LIBRARIES = {
    "collect_usage_pieces": "typer calls it on a command for its help page",
    "datagram_received": "asyncio calls it on a protocol",
    "format_epilog": "typer calls it on a command or a group for its help page",
    "format_commands": "typer calls it on a group for its help page",
    "ignore_aliases": "PyYAML calls it on its dumper",
    "on_broken_pipe": "rich calls it on a console when a write raises BrokenPipeError",
    "main_loop": "uvicorn calls it on its server",
}


def definitions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each function, class and constant of a module, and of each method without a decorator."""
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body)
            yield statement.lineno, statement.name
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = (node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
            yield from ((statement.lineno, name.id) for name in names)
    yield from _functions(tree.body)


def _functions(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Yield the functions of a body; a decorator can register a function, so that a library calls it."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and not statement.decorator_list:
            yield statement.lineno, statement.name


def main() -> int:
    """Check the whole package; return 1 if a name is defined and not used, else 0."""
    texts = {path: path.read_text() for path in sorted(ROOT.rglob("*.py"))}
    words = Counter(word for text in texts.values() for word in re.findall(r"\w+", text))
    unused = [
        f"{path}:{line}: {name} is not used in {ROOT}: delete it"
        for path, text in texts.items()
        for line, name in definitions(ast.parse(text))
        if words[name] == 1 and not name.startswith("__") and name not in CALLED_BY_LIBRARIES
    ]
    print("\n".join(unused) or "unused: fine")
    return 1 if unused else 0


if __name__ == "__main__":
    sys.exit(main())
