"""Invalid input: `check`, `up` and kubectl report the position of each mistake (R6, R18, D1, D12)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.e2e.manifests import external, split_manifest
from tests.e2e.running_mesh import RunningMesh, headgate
from tests.waiting import until
from tests.wire import Request

SPLIT = """\
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata:
  name: bad
spec:
  service: other
  backends:
  - service: other-v1
    weight: 1
"""


class Mistake(NamedTuple):
    """A file with a mistake, and the expected report: line, field, and a part of the message."""

    text: bytes
    line: int
    field: str
    message: str


def changed(old: str, new: str) -> bytes:
    assert old in SPLIT
    return SPLIT.replace(old, new).encode()


OBJECTS = {  # complete objects, which kubectl can send
    "negative": Mistake(changed("weight: 1", "weight: -1"), 9, "spec.backends[0].weight", "must be 0 or more, not -1"),
    "fraction": Mistake(
        changed("weight: 1", "weight: 10.5"), 9, "spec.backends[0].weight", "must be a whole number, not 10.5"
    ),
    "text": Mistake(
        changed("weight: 1", 'weight: "10"'), 9, "spec.backends[0].weight", "must be a whole number, not the text '10'"
    ),
    "twice": Mistake(
        SPLIT.encode() + b"  - service: other-v1\n    weight: 2\n",
        10,
        "spec.backends[1].service",
        "is the same Service as in spec.backends[0]",
    ),
    "no-weight": Mistake(changed("    weight: 1\n", ""), 8, "spec.backends[0].weight", "missing"),
    "field": Mistake(
        changed("    weight: 1", "    weight: 1\n    wieght: 2"), 10, "spec.backends[0].wieght", "not a field"
    ),
    "self": Mistake(changed("other-v1", "other"), 8, "spec.backends[0].service", "both the root and a backend"),
}
FILES = {  # files that contain no valid object
    "version": Mistake(
        changed("v1alpha4", "v9"), 1, "apiVersion", "'split.smi-spec.io/v9' is not a version of TrafficSplit"
    ),
    "kind": Mistake(changed("TrafficSplit", "TrafficSplat"), 2, "kind", "TrafficSplat"),
    "not-yaml": Mistake(b"kind: [\n", 2, "", "is not YAML"),
    "binary": Mistake(b"\x7fELF\0\xff\xfe", 1, "", "is not text"),
    "half-written": Mistake(SPLIT[:-8].encode(), 10, "", "is not YAML"),
    "large": Mistake(b"a" * 10_000_000, 1, "", "files up to 5 MB are read"),
}
EVERYTHING = OBJECTS | FILES


class Site:
    """A new mesh whose directory contains a valid split."""

    def __init__(self, mesh: RunningMesh) -> None:
        self.mesh = mesh
        mesh.write("base.yaml", "\n---\n".join([external("web"), external("web-v1", mesh.backend("v1"))]))
        mesh.write("split.yaml", split_manifest("web", "web", {"web-v1": 1}))
        mesh.write("other.yaml", "\n---\n".join([external("other", mesh.backend("root")), external("other-v1")]))

    @property
    def request(self) -> Request:
        return self.mesh.request("web", 8080)

    def problem(self, name: str) -> dict[str, Any]:
        """Return the only problem of a file in headgate's last list of problems."""
        lists = [line["problems"] for line in self.mesh.lines if "problems" in line]
        found = [item for item in lists[-1] if Path(item["file"]).name == name]
        assert len(found) == 1, lists[-1]
        return dict(found[0])


@pytest.fixture
def site(new_mesh: Callable[..., RunningMesh]) -> Site:
    return Site(new_mesh())


def check(*paths: Path) -> tuple[int, list[dict[str, Any]]]:
    """Run `headgate check`; return the exit code and the findings."""
    done = headgate("check", "-o", "json", *map(str, paths))
    return done.returncode, json.loads(done.stdout)["findings"]


def test_check_reports_every_mistake_with_its_line_and_field(tmp_path: Path) -> None:
    (tmp_path / "services.yaml").write_text("\n---\n".join([external("other"), external("other-v1")]))
    for name, mistake in EVERYTHING.items():
        path = tmp_path / f"{name}.yaml"
        path.write_bytes(mistake.text)
        code, findings = check(path, tmp_path / "services.yaml")
        errors = [item for item in findings if item["severity"] == "Error"]
        assert code == 1, name
        assert len(errors) == 1, (name, errors)
        assert (errors[0]["line"], errors[0]["field"]) == (mistake.line, mistake.field), errors
        assert mistake.message in errors[0]["message"]
        assert errors[0]["file"] == str(path)
        path.unlink()


def test_check_reports_a_self_reference_when_the_service_is_missing(tmp_path: Path) -> None:
    """D1: kubectl and `up` reject a self-reference even without the Service, so `check` must report it."""
    (tmp_path / "split.yaml").write_bytes(OBJECTS["self"].text)
    code, findings = check(tmp_path)
    assert (code, [item["reason"] for item in findings]) == (1, ["SelfReference"])


def test_the_api_rejects_every_invalid_object_and_names_the_field(mesh: RunningMesh, namespace: str) -> None:
    for name, mistake in OBJECTS.items():
        refused = mesh.try_kubectl("apply", "-n", namespace, "-f", "-", stdin=mistake.text.decode())
        assert refused.returncode == 1, name
        errors = " ".join(refused.stderr.split())
        assert mistake.field in errors, (name, errors)
    assert mesh.get("trafficsplits", namespace)["items"] == []


def test_up_reads_a_split_without_apiversion_with_a_warning_and_kubectl_rejects_it(site: Site) -> None:
    """D27: an example of specification 001 has no apiVersion."""
    bare = SPLIT.removeprefix("apiVersion: split.smi-spec.io/v1alpha4\n")
    mesh, mark = site.mesh, len(site.mesh.lines)
    mesh.write("bare.yaml", bare)
    (warning,) = mesh.line(lambda line: "warnings" in line, mark)["warnings"]
    assert (Path(warning["file"]).name, warning["line"], warning["field"]) == ("bare.yaml", 1, "apiVersion")
    assert "the TrafficSplit is read as split.smi-spec.io/v1alpha4" in warning["message"]
    mesh.conditions("bad", Programmed="True")
    refused = mesh.try_kubectl("apply", "-f", "-", stdin=bare)
    assert refused.returncode == 1
    assert "apiVersion not set" in refused.stderr
    (mesh.root / "bare.yaml").write_text(bare)
    compiled = headgate("compile", str(mesh.root / "bare.yaml"))
    assert "bare.yaml:1:1: apiVersion: is missing; the TrafficSplit is read as" in compiled.stderr


def test_up_reports_every_mistake_and_applies_other_edits(site: Site) -> None:
    """A file with a mistake changes no object."""
    mesh = site.mesh
    with mesh.load(site.request) as load:
        for name, mistake in EVERYTHING.items():
            mesh.write(f"{name}.yaml", mistake.text)
            problem = site.problem(f"{name}.yaml")
            assert (problem["line"], problem["field"]) == (mistake.line, mistake.field), problem
            assert mistake.message in problem["message"]
            mesh.write("labels.yaml", external(f"new-{name}"))
            assert mesh.address(f"new-{name}", 8080)
            assert mesh.remove(f"{name}.yaml") == {"problems": []}
    assert load.counts == {"v1": load.sent}


def test_a_broken_file_keeps_its_objects_and_a_removed_file_deletes_them(site: Site) -> None:
    mesh = site.mesh
    whole = (mesh.directory / "split.yaml").read_text()
    assert mesh.send(10, site.request) == {"v1": 10}
    for broken in (whole[: len(whole) // 2], "", "\0", whole.replace("web-v1", "web")):
        mesh.write("split.yaml", broken)
        assert mesh.send(10, site.request) == {"v1": 10}
        assert site.problem("split.yaml")["message"]
    line = mesh.write("split.yaml", whole.replace("web-v1", "other"))
    assert line["applied"]["changed"] == ["TrafficSplit default/web"]
    assert mesh.send(10, site.request) == {"root": 10}
    line = mesh.remove("split.yaml")
    assert line["applied"]["removed"] == ["TrafficSplit default/web"]
    assert mesh.get("trafficsplits")["items"] == []
    assert mesh.send(10, site.request) == {"503": 10}  # without the split, web itself has no endpoints


def test_up_reports_a_symlink_out_of_the_directory_as_a_problem(site: Site) -> None:
    mesh = site.mesh
    mark = len(mesh.lines)
    (mesh.directory / "out.yaml").symlink_to("/etc/hostname")
    mesh.line(lambda line: "problems" in line, mark)
    assert "symlink" in site.problem("out.yaml")["message"]
    assert mesh.send(10, site.request) == {"v1": 10}


def test_check_kubectl_and_the_status_report_a_reference_without_grant(
    mesh: RunningMesh, namespace: str, tmp_path: Path
) -> None:
    """D12, R22: the object is accepted; `check`, kubectl, a condition and an Event report the missing grant."""
    written = split_manifest("web", "web", {"web-v1.elsewhere": 1})
    hint = "create a ReferenceGrant in the namespace elsewhere"
    services = external("web", mesh.backend("root"))
    path = tmp_path / "all.yaml"
    path.write_text(f"{services}\n---\n{written}")
    code, findings = check(path)
    assert code == 0
    assert [(item["severity"], item["reason"]) for item in findings] == [("Warning", "RefNotPermitted")]
    assert hint in findings[0]["message"]
    mesh.apply(services, namespace=namespace)
    applied = mesh.try_kubectl("apply", "-n", namespace, "-f", "-", stdin=written)
    assert applied.returncode == 0
    assert "Warning: spec.backends[0].service" in applied.stderr
    assert hint in applied.stderr
    assert hint in mesh.conditions("web", namespace, ResolvedRefs="RefNotPermitted")["ResolvedRefs"][2]
    warnings = until(lambda: [item for item in mesh.events("web", namespace) if item[0] == "Warning"])
    assert [(item[1], hint in item[2]) for item in warnings] == [("RefNotPermitted", True)]
    mesh.settle()
    assert mesh.send(10, mesh.request("web", 8080, namespace=namespace)) == {"root": 10}
