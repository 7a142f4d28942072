"""The files of the page, as they are served."""

import json
import re
from pathlib import Path

import pytest

from headgate.dashboard.assets import PAGE, read_assets

_IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["']([^"'\s]+)["']""")
_REFERENCE = re.compile(r'(?:src|href)="/page/\{\{DIGEST\}\}/([^"]+)"')
OWN = [path for path in sorted(PAGE.rglob("*.js")) if "vendor" not in path.parts]


def test_each_file_changes_the_digest(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("{{DIGEST}} {{CONTEXT}}")
    (tmp_path / "app.js").write_text("1")
    digests = {read_assets(tmp_path).digest}
    (tmp_path / "app.js").write_text("2")
    digests.add(read_assets(tmp_path).digest)
    (tmp_path / "app.js").rename(tmp_path / "other.js")
    digests.add(read_assets(tmp_path).digest)
    (tmp_path / "index.html").write_text("{{DIGEST}}")
    digests.add(read_assets(tmp_path).digest)
    assert len(digests) == 4


def test_the_index_loads_files_that_exist() -> None:
    assets = read_assets()
    references = _REFERENCE.findall(assets.template)
    assert "app.js" in references
    assert [name for name in references if name not in assets.files] == []


@pytest.mark.parametrize("path", sorted(PAGE.rglob("*.js")), ids=lambda path: path.relative_to(PAGE).as_posix())
def test_each_import_is_a_file_of_the_page(path: Path) -> None:
    imported = _IMPORT.findall(path.read_text())
    assert [name for name in imported if not name.startswith(".")] == []
    assert [name for name in imported if not (path.parent / name).is_file()] == []


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.relative_to(PAGE).as_posix())
def test_no_source_writes_html_or_code_from_text(path: Path) -> None:
    text = path.read_text()
    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\sstyle=\"", text)
        == []
    )


def test_no_file_names_another_origin() -> None:
    names = {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xhtml",
        "http://website",
    }  # of SVG, of HTML, an example
    texts = [PAGE / "index.html", *OWN, *PAGE.rglob("style/*.css")]
    origins = {url for path in texts for url in re.findall(r"https?://[\w./-]+", path.read_text())}
    assert origins - names == set()


def test_each_library_has_its_license_and_version() -> None:
    record = json.loads((PAGE / "vendor" / "vendor.json").read_text())
    for name, package in record["packages"].items():
        assert package["license"] in {"MIT", "Apache-2.0"}
        assert (PAGE / "vendor" / f"LICENSE.{name.removeprefix('@').replace('/', '-')}").is_file()
