"""Reading a directory of manifests: its objects, its problems, and watching for edits."""

import os
from pathlib import Path

import pytest

from headgate.errors import StoreError
from headgate.manifests.files import read, read_texts, watch
from headgate.resources.meta import Key

SPLIT = """\
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata:
  name: {name}
spec:
  service: birds
  backends:
  - service: blue
    weight: {weight}
"""


def split_text(name="birds", weight=1):
    return SPLIT.format(name=name, weight=weight)


def write(directory, **files):
    """Write files: the argument `sub__a_yaml` becomes the file `sub/a.yaml`."""
    for name, text in files.items():
        path = directory.joinpath(*name.rsplit("_", 1)[0].split("__")).with_suffix("." + name.rsplit("_", 1)[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(manifests):
    return [manifest.key.name for manifest in manifests.objects]


def problems_in(manifests, directory):
    """Return the problems as `file:line field: message`, with files relative to the directory."""
    return [
        f"{os.path.relpath(problem.file, directory)}:{problem.line} {problem.field}: {problem.message}"
        for problem in manifests.problems
    ]


def test_all_manifests_below_a_directory_are_read_in_order(tmp_path):
    write(
        tmp_path,
        b_yaml=split_text("b"),
        a__z_yml=split_text("z"),
        a__c_json='{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}',
        notes_txt="not: [",
    )
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.yaml").write_text("not: [")
    (tmp_path / ".x.yaml").write_text("not: [")
    manifests = read([tmp_path])
    assert manifests.problems == ()
    assert sorted(names(manifests)) == ["b", "c", "z"]
    assert manifests.objects[0].key == Key("split.smi-spec.io", "TrafficSplit", "default", "b")


def test_a_manifest_has_the_object_in_hub_version_and_as_written(tmp_path):
    write(tmp_path, a_yaml="# first\n" + split_text(weight="500m").replace("v1alpha4", "v1alpha1"))
    (manifest,) = read([tmp_path / "a.yaml"]).objects
    assert manifest.object["apiVersion"] == "split.smi-spec.io/v1alpha4"
    assert manifest.object["spec"]["backends"][0]["weight"] == 1
    assert manifest.written["spec"]["backends"][0]["weight"] == "500m"
    assert str(manifest.problem("spec.backends[0].weight", "is heavy")) == (
        f"{tmp_path / 'a.yaml'}:10:5: spec.backends[0].weight: is heavy"
    )


def test_a_mistake_is_reported_at_its_line_and_other_files_are_read(tmp_path):
    write(tmp_path, a_yaml=split_text("good") + "---\n" + split_text("bad", -1), b_yaml=split_text("other"))
    manifests = read([tmp_path])
    assert problems_in(manifests, tmp_path) == ["a.yaml:19 spec.backends[0].weight: must be 0 or more, not -1"]
    assert names(manifests) == ["good", "other"]
    assert manifests.broken == {str(tmp_path / "a.yaml")}


def test_each_unusable_file_is_reported_with_its_reason(tmp_path):
    write(tmp_path, a_yaml="a: [", c_yaml="kind: Toaster\napiVersion: v1\n", d_yaml=split_text("d") + "  color: red\n")
    (tmp_path / "b.yaml").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (tmp_path / "e.yaml").write_bytes(b"a: 1\0")
    with (tmp_path / "f.yaml").open("wb") as file:
        file.truncate(10_000_000)
    os.mkfifo(tmp_path / "g.yaml")
    (tmp_path / "h.yaml").symlink_to("h.yaml")
    (tmp_path / "i.yaml").symlink_to("/etc/hostname")
    write(tmp_path, j_yaml="apiVersion: v1\nkind: ConfigMap\nmetadata:\n  generateName: x-\n")
    problems = problems_in(read([tmp_path]), tmp_path)
    assert [problem.split(" ")[0] for problem in problems] == [
        "a.yaml:2", "b.yaml:1", "c.yaml:1", "d.yaml:10", "e.yaml:1",
        "f.yaml:1", "g.yaml:1", "h.yaml:1", "i.yaml:1", "j.yaml:3",
    ]  # fmt: skip
    for problem, words in zip(
        problems,
        [
            "is not YAML",
            "is not text (byte 0 is not UTF-8)",
            "kind: 'Toaster' is not a kind that headgate knows; kinds of the core group are ConfigMap, Endpoints",
            "spec.color: is not a field",
            "is binary",
            "has 10.0 MB; files up to 5 MB are read",
            "is not a regular file",
            "can't be read: Too many levels of symbolic links",
            "is a symlink to a file that is no manifest",
            "an object in a file needs a name",
        ],
        strict=True,
    ):
        assert words in problem


def test_an_object_written_twice_is_reported_at_both_positions(tmp_path):
    write(tmp_path, a_yaml=split_text("x"), b_yaml=split_text("ok") + "---\n" + split_text("x", 2))
    manifests = read([tmp_path])
    assert manifests.broken == {str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")}
    assert [(Path(problem.file).name, problem.line) for problem in manifests.problems] == [
        ("a.yaml", 4),
        ("b.yaml", 14),
    ]
    assert f"also in {tmp_path / 'b.yaml'}:14: keep one" in manifests.problems[0].message
    assert f"also in {tmp_path / 'a.yaml'}:4: keep one" in manifests.problems[1].message


def test_a_symlink_inside_the_directory_is_read_once(tmp_path):
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "a.yaml").write_text(split_text())
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    manifests = read([tmp_path])
    assert (names(manifests), manifests.problems) == (["birds"], ())


def test_symlinks_to_manifests_and_directories_outside_are_followed(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    inside.mkdir()
    write(outside, a_yaml=split_text("a"), more__b_yaml=split_text("b"))
    (inside / "a.yaml").symlink_to(outside / "a.yaml")
    (inside / "more").symlink_to(outside / "more")
    (inside / "again").symlink_to(inside)
    manifests = read([inside])
    assert (sorted(names(manifests)), manifests.problems) == (["a", "b"], ())


def test_texts_that_were_read_before_come_first(tmp_path):
    write(tmp_path, a_yaml=split_text("a"))
    given, _ = read_texts([tmp_path])
    write(tmp_path, a_yaml=split_text("b"))
    assert names(read([tmp_path], given=given)) == ["a", "b"]


async def test_an_edit_of_a_single_file_is_seen_when_an_editor_replaces_it(tmp_path):
    write(tmp_path, a_yaml=split_text("a"))
    readings = watch([tmp_path / "a.yaml"])
    assert names(await anext(readings)) == ["a"]
    write(tmp_path, new_yaml=split_text("b"))
    (tmp_path / "new.yaml").rename(tmp_path / "a.yaml")
    assert names(await anext(readings)) == ["b"]
    await readings.aclose()


def test_an_empty_file_is_a_problem_and_a_file_of_comments_is_not(tmp_path):
    write(tmp_path, a_yaml=" \n", b_yaml="# nothing yet\n---\n")
    assert problems_in(read([tmp_path]), tmp_path) == [
        "a.yaml:1 : is empty: add an object to it; to remove the objects that it contained, delete the file"
    ]


def test_a_missing_path_is_a_problem(tmp_path):
    (problem,) = read([tmp_path / "none"]).problems
    assert "can't be read: No such file" in str(problem)


async def test_watching_yields_edits_and_skips_writes_without_a_change(tmp_path):
    write(tmp_path, a_yaml=split_text(weight=1))
    readings = watch([tmp_path])
    first = await anext(readings)
    assert names(first) == ["birds"]
    (tmp_path / ".headgate").mkdir()
    (tmp_path / ".headgate" / "store.db").write_text("x")
    os.utime(tmp_path / "a.yaml")
    write(tmp_path, sub__b_yaml=split_text("b"))
    assert names(await anext(readings)) == ["birds", "b"]
    (tmp_path / "sub" / "b.yaml").unlink()
    assert await anext(readings) == first
    (tmp_path / "a.yaml").write_text("half: [")
    assert (await anext(readings)).broken
    await readings.aclose()


async def test_an_edit_right_after_the_first_read_is_not_missed(tmp_path):
    write(tmp_path, a_yaml=split_text(weight=1))
    readings = watch([tmp_path])
    await anext(readings)
    write(tmp_path, a_yaml=split_text(weight=2))
    (manifest,) = (await anext(readings)).objects
    assert manifest.object["spec"]["backends"][0]["weight"] == 2
    await readings.aclose()


async def test_watching_a_missing_directory_raises_an_error(tmp_path):
    readings = watch([tmp_path / "none"])
    with pytest.raises(StoreError, match="can't be watched"):
        [reading async for reading in readings]


def test_a_file_name_that_is_not_utf8_is_reported_as_printable_text(tmp_path):
    (tmp_path / os.fsdecode(b"na\xffme.yaml")).write_text(split_text())
    found = read([tmp_path])
    assert found.objects == ()
    assert [problem.message for problem in found.problems] == ["has a name that is not UTF-8: rename it"]
    assert found.problems[0].file.encode() == f"{tmp_path}/na\N{REPLACEMENT CHARACTER}me.yaml".encode()


def test_an_object_without_apiversion_gets_the_newest_version_that_accepts_it(tmp_path):
    """D27. Only for kinds that the specifications show without an apiVersion."""
    bare = split_text().replace("apiVersion: split.smi-spec.io/v1alpha4\n", "")
    config = "kind: TLSConfig\nname: old\nspec: {selector: {matchLabels: {app: web}}}\n"
    flat = "kind: TrafficTarget\nmetadata: {name: flat}\ndestination: {kind: ServiceAccount, name: a, port: 80}\n"
    write(
        tmp_path,
        a_yaml=bare,
        b_yaml=bare.replace("name: birds", "name: quantities", 1).replace("weight: 1", "weight: 10m"),
        c_yaml=config,
        d_yaml=flat + "sources: [{kind: ServiceAccount, name: b}]\nspecs: [{kind: TCPRoute, name: t}]\n",
        e_yaml="kind: List\nitems:\n- kind: Service\n  metadata: {name: web}\n  spec: {ports: [{port: 80}]}\n",
        f_json='{"kind": "Deployment", "metadata": {"name": "web"}}',
    )
    manifests = read([tmp_path])
    assert {manifest.key.name: manifest.written["apiVersion"] for manifest in manifests.objects} == {
        "birds": "split.smi-spec.io/v1alpha4",
        "quantities": "split.smi-spec.io/v1alpha1",
        "old": "v1beta1",
        "flat": "access.smi-spec.io/v1alpha1",
        "web": "v1",
    }
    places = [(Path(item.file).name, item.line, item.field) for item in manifests.warnings]
    assert places == [(f"{name}.yaml", 3 if name == "e" else 1, "apiVersion") for name in "abcde"]
    assert (
        "is read as split.smi-spec.io/v1alpha1, the newest version in which it is valid"
        in manifests.warnings[1].message
    )
    (problem,) = problems_in(manifests, tmp_path)
    assert problem.startswith("f.json:1 apiVersion: is missing")


def test_a_mistake_in_an_object_without_apiversion_names_the_assumed_version(tmp_path):
    bare = split_text(weight=-1).replace("apiVersion: split.smi-spec.io/v1alpha4\n", "")
    write(tmp_path, a_yaml=bare)
    manifests = read([tmp_path])
    assert manifests.objects == manifests.warnings == ()
    (problem,) = problems_in(manifests, tmp_path)
    assert problem == (
        "a.yaml:8 spec.backends[0].weight: must be 0 or more, not -1 "
        "(read as split.smi-spec.io/v1alpha4, because apiVersion is missing)"
    )
