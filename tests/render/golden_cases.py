"""The cases of golden files of rendered configurations, and all golden cases, which real proxies must accept."""

from collections.abc import Mapping
from pathlib import Path

from tests.golden.cases import CASES, compiled

from headgate.cli.offline import compile_files
from headgate.model.routing import Mesh
from headgate.render.proxy_ports import Chosen, Selection, select

OWN_CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))


def selection(case: Path) -> Selection:
    """Return what the golden files of an own case show."""
    chosen = Chosen(services=["default/web"]) if case.stem == "canary" else Chosen(gateways=["default/edge"])
    return select(compile_files([case]).compiled.mesh, chosen)


def all_meshes() -> Mapping[str, Mesh]:
    """Return the meshes of all cases by name."""
    own = {case.stem: compile_files([case]).compiled.mesh for case in OWN_CASES}
    return own | {case: compiled(case).mesh for case in CASES}
