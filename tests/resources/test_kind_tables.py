"""What differs by kind stands in the room of the kind: no other module has a table that is keyed by kinds."""

import ast
from collections.abc import Iterator
from pathlib import Path

from headgate.kinds import NAMES
from headgate.resources.registry import KINDS

SOURCE = Path("src/headgate")
KNOWN = {names.kind for names in NAMES}
ABOVE = {
    "admission/workloads.py": "the defaults of the embedded API, which need its limits",
    "compiler/gateway_api/backend_shares.py": "what a proxy answers by protocol",
    "compiler/gateway_api/conflicts.py": "which routes share hosts",
    "envoy/descriptors.py": "messages of Envoy that have the names of kinds",
    "plane/status/writer.py": "the functions that write statuses, which need the plane",
    "resources/further/columns.py": "the columns of kinds that share one room, as nothing but names and columns differs",
    "standalone/setup.py": "what the host does at a write",
}
"""Tables of what a room can't have, with the reasons."""


def is_kind(key: ast.expr | None) -> bool:
    """Return whether a key is a kind, or a pair of a group and a kind."""
    if isinstance(key, ast.Tuple) and len(key.elts) == 2:
        return is_kind(key.elts[1])
    return isinstance(key, ast.Constant) and key.value in KNOWN


def tables(path: Path) -> Iterator[int]:
    """Yield the lines of the tables that are keyed by several kinds."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Dict) and sum(map(is_kind, node.keys)) > 1:
            yield node.lineno


def test_no_module_outside_the_rooms_has_a_table_keyed_by_kinds() -> None:
    lines_of = {path.relative_to(SOURCE).as_posix(): list(tables(path)) for path in SOURCE.rglob("*.py")}
    assert {path for path, lines in lines_of.items() if lines} == ABOVE.keys()


def test_each_kind_is_the_only_one_of_its_name_in_its_group() -> None:
    names = [(kind.group, kind.kind) for kind in KINDS]
    assert len(names) == len(set(names))
