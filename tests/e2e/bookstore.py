"""examples/bookstore as the tests run it."""

import re
from pathlib import Path

from tests.e2e.running_mesh import RunningMesh

EXAMPLES = Path(__file__).parents[2] / "examples"
BOOKSTORE = {path.name: path.read_text() for path in (EXAMPLES / "bookstore").glob("*.yaml")}
"""The manifests of the example by file name."""
ALLOWED, DENIED = {"GET: v", "POST: v"}, {"GET: 403", "POST: 403"}


def last_results(mesh: RunningMesh, deployment: str) -> set[str]:
    """Return the results in the last line that a Deployment logged, without counts, for example `GET: v`."""
    last = mesh.log(deployment)[-1]
    return {re.sub(r"v\d", "v", result) for result in re.findall(r"(?:GET|POST): \w+", last)}
