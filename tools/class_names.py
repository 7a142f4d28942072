"""Fail when two classes below src/ have one name: one class name, one meaning.

`ALLOWED` has the names that may mean two things, with the reason.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path("src/headgate")
_API = "the value, and what the inspect API shows of it"
_READ = "of a Pod: the fields that the mesh reads, and those that the local runtime runs"
_SHOWN = "the value, and what a command prints of it"
_TWO = "two things of one name, each imported by ten modules and more; rename one of them in a change of its own"
ALLOWED: Mapping[str, str] = {
    "Backend": "the backend of a split, what metrics count of it, and what an explanation shows of it",
    "Certificate": _TWO,
    "Criterion": _SHOWN,
    "Finding": _API,
    "Plan": "the spec of a Canary as a plan, and the plan of a change; both are kinds of answers to users",
    "Pod": _READ,
    "Progress": _SHOWN,
    "Proxy": _API,
    "Request": "a request of HTTP, and of xDS: both protocols call it so",
    "Revision": _API,
    "TCPRoute": "SMI and the Gateway API each have a kind of this name",
}


def classes() -> Iterator[tuple[str, str]]:
    """Yield the name and the place of each public class."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, f"{path}:{node.lineno}"


def main() -> int:
    """Print the classes with one name, and the exceptions without a use; return 1 if there are any."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, place in classes():
        places[name].append(place)
    twins = {name for name, found in places.items() if len(found) > 1}
    lines = [
        f"{name} is the name of {len(places[name])} classes: {', '.join(places[name])}" for name in twins - {*ALLOWED}
    ]
    lines += [f"{name} is the name of one class now; remove it from ALLOWED" for name in {*ALLOWED} - twins]
    print("\n".join(sorted(lines)) or "class names: fine")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
