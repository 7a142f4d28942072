"""The pure modules of the graph: its model, filter, layout and keys (issue 35; R110). They run in node, with its test runner."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.dashboard import meshes

TESTS = Path(__file__).parent / "graph"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node (Debian: nodejs)")
def test_model_filter_layout_and_keys_of_the_graph(tmp_path: Path) -> None:
    written = tmp_path / "meshes.json"
    graphs = {
        "bookstore": meshes.bookstore(),
        "splits": meshes.splits(630, 370),
        "sixty": meshes.services(60, 120),
        "sixty_later": meshes.services(60, 120, tick=1),
        "large": meshes.services(300, 1000),
    }
    written.write_text(json.dumps(graphs))
    files = sorted(map(str, TESTS.glob("*.test.js")))
    result = subprocess.run(
        ["node", "--test", "--test-reporter=spec", *files],
        env=os.environ | {"MESHES": str(written)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
