"""What is rendered for nginx: compared with files, and checked by the real nginx.

A golden file has what differs between configurations: all lines after the common definitions, and the omissions. After
an intended change, run `pytest tests/render --update-golden` and review the diff.
"""

from pathlib import Path

import pytest
from msgspec import structs
from tests.authority import Authority
from tests.render.golden_cases import OWN_CASES, all_meshes, selection
from tests.render.nginx.nginx_process import STREAM_MODULE, check, needs_nginx

from headgate.model.identities import Credential
from headgate.model.routing import Mesh
from headgate.proxy_programs.files import write_files
from headgate.render.nginx.configuration import render
from headgate.render.output import Rendered
from headgate.render.proxy_ports import select


def with_certificates(rendered: Rendered, shown: Credential) -> Rendered:
    """Replace the certificates of golden cases, which no program accepts."""
    files = {
        name: {".crt": shown.chain, ".key": shown.key}.get(Path(name).suffix, text)
        for name, text in rendered.files.items()
    }
    return structs.replace(rendered, files=files)


@pytest.fixture(scope="module")
def credential() -> Credential:
    return Authority().issue("", "*.example.com")


def own_part(rendered: Rendered) -> str:
    lines = str(rendered.files[rendered.main]).splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if line.startswith("    geo ")), 0)
    return "".join([*(line for line in lines if line.startswith("#")), *lines[first:]])


@pytest.mark.parametrize("case", OWN_CASES, ids=lambda case: case.stem)
def test_the_rendered_configuration_is_that_of_the_golden_file(case: Path, pytestconfig: pytest.Config) -> None:
    shown = own_part(render(selection(case)))
    golden = Path(__file__).parent / f"{case.stem}.conf"
    if pytestconfig.getoption("--update-golden"):
        golden.write_text(shown)
    assert shown == golden.read_text()


def accepted(mesh: Mesh, credential: Credential, directory: Path) -> str:
    rendered = render(select(mesh), stream_module=STREAM_MODULE)
    write_files(with_certificates(rendered, credential), directory)
    return check(directory)


@needs_nginx
def test_nginx_accepts_what_is_rendered_for_every_golden_case(tmp_path: Path, credential: Credential) -> None:
    for name, mesh in all_meshes().items():
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        found = accepted(mesh, credential, directory)
        # External names are resolved when nginx starts, and tests have no DNS server.
        assert not found or "host not found in upstream" in found, f"{name}: {found}"
