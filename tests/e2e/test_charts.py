"""What charts contain, on a running mesh: no object is lost, and what headgate says of it fits on a terminal of 24 x 80."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.charts import CHARTS, UNDEFINED, created_chart, objects_in
from tests.e2e.running_mesh import RunningMesh, headgate, mesh_in_a_new_directory

from headgate.formatting import pluralize

ROWS, COLUMNS, MOST_ROWS = 24, 80, 6


def assert_readable(text: str) -> None:
    """Assert that a text fits on a terminal, and that each of its lines has few rows."""
    rows = [-(-len(line) // COLUMNS) for line in text.splitlines()]
    assert sum(rows) <= ROWS, text
    assert max(rows, default=0) <= MOST_ROWS, text


def assert_stored(mesh: RunningMesh, objects: Iterable[Mapping[str, Any]]) -> None:
    for obj in objects:
        assert mesh.api.call("GET", f"{mesh.api.collection(obj)}/{obj['metadata']['name']}")["kind"] == obj["kind"]


def test_charts_are_checked_planned_applied_and_started_without_a_loss(tmp_path: Path) -> None:
    outputs = [*sorted(CHARTS.glob("*.yaml")), created_chart(tmp_path)]
    with mesh_in_a_new_directory() as mesh:
        for path in outputs:
            objects, text = objects_in(path), path.read_text()
            checked = headgate("check", "-", stdin=text)
            assert checked.returncode == (1 if path.stem == "created" else 0)  # its Gateway is not part of the chart
            assert checked.stderr.strip().endswith(f"in {pluralize(len(objects), 'object')}")
            assert_readable(checked.stdout + checked.stderr)
            planned = mesh.headgate("plan", "-f", "-", stdin=text)
            assert planned.returncode in (0, 1), planned
            assert_readable(planned.stderr)
            applied = mesh.try_kubectl("apply", "-f", "-", stdin=text)
            left_out = [kind for kind in UNDEFINED if f"kind: {kind}\n" in text]
            assert [kind for kind in left_out if f'no matches for kind "{kind}"' not in applied.stderr] == []
            assert_readable(applied.stderr)
            if path.stem == "monitoring":  # kubectl does not know a kind yet that the same file defines
                mesh.kubectl("apply", "-f", "-", stdin=text)
            assert_stored(mesh, objects)
        assert mesh.stop() == 0
        shutil.rmtree(mesh.state)
        for path in outputs:
            (mesh.directory / path.name).write_text(path.read_text())
        mesh.start()
        assert_stored(mesh, (obj for path in outputs for obj in objects_in(path)))
        (line,) = (line["withoutEffect"] for line in mesh.lines if "withoutEffect" in line)
        assert [kind for kind in UNDEFINED if kind not in " ".join(line)] == []
        assert mesh.stop() == 0
