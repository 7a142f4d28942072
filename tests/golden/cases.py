"""The golden cases as compiled meshes; each directory here is a case."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml
from tests.decoding import validate

from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.plane.feed import snapshot_of
from headgate.resources.meta import Key, Object
from headgate.resources.registry import find_written
from headgate.resources.versions import to_hub, with_metadata_name
from headgate.settings import Settings

HERE = Path(__file__).parent
CASES = sorted(path.parent.name for path in HERE.glob("*/in.yaml"))


def read(path: Path) -> Mapping[Key, Object]:
    """Return all objects of a file, including invalid ones."""
    objects: dict[Key, Object] = {}
    for obj in map(with_metadata_name, yaml.load_all(path.read_text(), yaml.CSafeLoader)):
        kind = find_written(obj["apiVersion"], obj["kind"])
        assert kind is not None, obj
        whole = {**obj, "metadata": {"namespace": "default", **obj["metadata"]}}
        key = kind.key(whole["metadata"]["namespace"], whole["metadata"]["name"])
        objects[key] = whole if validate(whole) else to_hub(whole)
    return objects


@cache
def compiled(case: str) -> Compiled:
    """Compile the objects of a case with its settings."""
    file = HERE / case / "settings.yaml"
    settings = Settings(**yaml.safe_load(file.read_text())) if file.exists() else Settings()
    return compile_mesh(snapshot_of(read(HERE / case / "in.yaml")), settings)
