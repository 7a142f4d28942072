"""Fail when two classes below src/ have one name: one class name, one meaning."""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("src/headgate")


def classes() -> Iterator[tuple[str, str]]:
    """Yield the name and the place of each public class."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, f"{path}:{node.lineno}"


def main() -> int:
    """Print the classes with one name; return 1 if there are any."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, place in classes():
        places[name].append(place)
    lines = [
        f"{name} is the name of {len(same)} classes: {', '.join(same)}"
        for name, same in places.items()
        if len(same) > 1
    ]
    print("\n".join(sorted(lines)) or "class names: fine")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
