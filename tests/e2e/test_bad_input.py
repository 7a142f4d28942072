"""What users get wrong: each mistake is named where it is made, and everything else goes on (R6, R18, D1, D12)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.e2e.manifests import external, split
from tests.e2e.wire import Request
from tests.e2e.world import World, headgate, until

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
    """A file, and what must be said of it: the place, and a part of the message."""

    text: bytes
    line: int
    field: str
    says: str


def changed(old: str, new: str) -> bytes:
    assert old in SPLIT
    return SPLIT.replace(old, new).encode()


OBJECTS = {  # whole objects, which kubectl can send
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
FILES = {  # what is no object at all
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
    """A world of its own, whose directory holds a split that works."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.write("base.yaml", "\n---\n".join([external("web"), external("web-v1", world.backend("v1"))]))
        world.write("split.yaml", split("web", "web", {"web-v1": 1}))
        world.write("other.yaml", "\n---\n".join([external("other", world.backend("root")), external("other-v1")]))

    @property
    def request(self) -> Request:
        return self.world.request("web", 8080)

    def problem(self, name: str) -> dict[str, Any]:
        """Return the problem that the newest list of them has in a file."""
        lists = [line["problems"] for line in self.world.lines if "problems" in line]
        found = [item for item in lists[-1] if Path(item["file"]).name == name]
        assert len(found) == 1, lists[-1]
        return dict(found[0])


@pytest.fixture
def site(new_world: Callable[..., World]) -> Site:
    return Site(new_world())


def check(*paths: Path) -> tuple[int, list[dict[str, Any]]]:
    """Run `headgate check`; return exit code and findings."""
    done = headgate("check", "-o", "json", *map(str, paths))
    return done.returncode, json.loads(done.stdout)["findings"]


def test_check_names_every_mistake_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "services.yaml").write_text("\n---\n".join([external("other"), external("other-v1")]))
    for name, mistake in EVERYTHING.items():
        path = tmp_path / f"{name}.yaml"
        path.write_bytes(mistake.text)
        code, findings = check(path, tmp_path / "services.yaml")
        errors = [item for item in findings if item["severity"] == "error"]
        assert code == 1, name
        assert len(errors) == 1, (name, errors)
        assert (errors[0]["line"], errors[0]["field"]) == (mistake.line, mistake.field), errors
        assert mistake.says in errors[0]["message"]
        assert errors[0]["file"] == str(path)
        path.unlink()


def test_check_finds_a_self_reference_without_the_services(tmp_path: Path) -> None:
    """D1: kubectl and `up` refuse it whether the Service exists or not, so `check` has to say so."""
    (tmp_path / "split.yaml").write_bytes(OBJECTS["self"].text)
    code, findings = check(tmp_path)
    assert (code, [item["reason"] for item in findings]) == (1, ["SelfReference"])


def test_kubectl_names_every_mistake_in_an_object(world: World, namespace: str) -> None:
    for name, mistake in OBJECTS.items():
        refused = world.try_kubectl("apply", "-n", namespace, "-f", "-", stdin=mistake.text.decode())
        assert refused.returncode == 1, name
        said = " ".join(refused.stderr.split())
        assert mistake.field in said, (name, said)
    assert world.get("trafficsplits", namespace)["items"] == []


def test_a_split_without_a_version_works_from_a_file_with_a_warning_and_kubectl_refuses_it(site: Site) -> None:
    """D27: as 001 writes it."""
    bare = SPLIT.removeprefix("apiVersion: split.smi-spec.io/v1alpha4\n")
    world, mark = site.world, len(site.world.lines)
    world.write("bare.yaml", bare)
    (warning,) = world.line(lambda line: "warnings" in line, mark)["warnings"]
    assert (Path(warning["file"]).name, warning["line"], warning["field"]) == ("bare.yaml", 1, "apiVersion")
    assert "the TrafficSplit is read as split.smi-spec.io/v1alpha4" in warning["message"]
    world.conditions("bad", Programmed="True")
    refused = world.try_kubectl("apply", "-f", "-", stdin=bare)
    assert refused.returncode == 1
    assert "apiVersion not set" in refused.stderr
    (world.root / "bare.yaml").write_text(bare)
    compiled = headgate("compile", str(world.root / "bare.yaml"))
    assert "bare.yaml:1:1: apiVersion: is missing; the TrafficSplit is read as" in compiled.stderr


def test_up_names_every_mistake_and_goes_on(site: Site) -> None:
    """A file that can't be used changes nothing, and other edits still apply."""
    world = site.world
    with world.load(site.request) as load:
        for name, mistake in EVERYTHING.items():
            world.write(f"{name}.yaml", mistake.text)
            problem = site.problem(f"{name}.yaml")
            assert (problem["line"], problem["field"]) == (mistake.line, mistake.field), problem
            assert mistake.says in problem["message"]
            world.write("labels.yaml", external(f"new-{name}"))
            assert world.address(f"new-{name}", 8080)
            assert world.remove(f"{name}.yaml") == {"problems": []}
    assert load.counts == {"v1": load.sent}


def test_breaking_a_file_changes_nothing_and_removing_it_prunes(site: Site) -> None:
    world = site.world
    whole = (world.directory / "split.yaml").read_text()
    assert world.send(10, site.request) == {"v1": 10}
    for broken in (whole[: len(whole) // 2], "", "\0", whole.replace("web-v1", "web")):
        world.write("split.yaml", broken)
        assert world.send(10, site.request) == {"v1": 10}
        assert site.problem("split.yaml")["message"]
    said = world.write("split.yaml", whole.replace("web-v1", "other"))
    assert said["applied"]["changed"] == ["TrafficSplit default/web"]
    assert world.send(10, site.request) == {"root": 10}
    said = world.remove("split.yaml")
    assert said["applied"]["removed"] == ["TrafficSplit default/web"]
    assert world.get("trafficsplits")["items"] == []
    assert world.send(10, site.request) == {"503": 10}  # plain behaviour: web has no endpoints of its own


def test_an_unreadable_file_is_a_problem_of_that_file(site: Site) -> None:
    world = site.world
    mark = len(world.lines)
    (world.directory / "out.yaml").symlink_to("/etc/hostname")
    world.line(lambda line: "problems" in line, mark)
    assert "symlink" in site.problem("out.yaml")["message"]
    assert world.send(10, site.request) == {"v1": 10}


def test_a_reference_without_grant_is_told_everywhere(world: World, namespace: str, tmp_path: Path) -> None:
    """D12: at check, at kubectl, in the condition and as an Event; the object is accepted (R22)."""
    written = split("web", "web", {"web-v1.elsewhere": 1})
    hint = "create a ReferenceGrant in the namespace elsewhere"
    services = external("web", world.backend("root"))
    path = tmp_path / "all.yaml"
    path.write_text(f"{services}\n---\n{written}")
    code, findings = check(path)
    assert code == 0
    assert [(item["severity"], item["reason"]) for item in findings] == [("warning", "RefNotPermitted")]
    assert hint in findings[0]["message"]
    world.apply(services, namespace=namespace)
    applied = world.try_kubectl("apply", "-n", namespace, "-f", "-", stdin=written)
    assert applied.returncode == 0
    assert "Warning: spec.backends[0].service" in applied.stderr
    assert hint in applied.stderr
    assert hint in world.conditions("web", namespace, ResolvedRefs="RefNotPermitted")["ResolvedRefs"][2]
    told = until(lambda: [item for item in world.events("web", namespace) if item[0] == "Warning"])
    assert [(item[1], hint in item[2]) for item in told] == [("RefNotPermitted", True)]
    world.settle()
    assert world.send(10, world.request("web", 8080, namespace=namespace)) == {"root": 10}
