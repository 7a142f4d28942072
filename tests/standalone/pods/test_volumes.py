import os
from pathlib import Path
from typing import Any

import pytest
from tests.make.objects import container, pod

from headgate.resources.core.pod_spec import Pod
from headgate.resources.decode import read
from headgate.standalone.pods.environment import Sources
from headgate.standalone.pods.runs import ConfigError
from headgate.standalone.pods.volume_files import VolumeInput
from headgate.standalone.pods.volumes import materialize, mounts

SOURCES = {("ConfigMap", "m"): {"a.txt": b"one", "run.sh": b"#!/bin/sh\n"}, ("Secret", "s"): {"key": b"secret"}}


def mounting(volume: dict[str, Any], **mount: Any) -> Pod:
    """Return a pod whose container mounts a volume."""
    app = container(volumeMounts=[{"name": "v", "mountPath": "/v", **mount}])
    return read(pod("web", containers=[app], volumes=[{"name": "v", **volume}]), Pod)


def written(pod: Pod, directory: Path, sources: Sources, claims: Any = None) -> Path:
    """Write the volume of a pod; return its path."""
    return materialize(VolumeInput(pod, "127.77.128.1", sources, claims or {}), directory)["v"].path


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_config_maps_and_secrets_become_files_with_their_modes(tmp_path):
    items = [{"key": "a.txt", "path": "a.txt"}, {"key": "run.sh", "path": "run.sh", "mode": 0o555}]
    made = written(
        mounting({"configMap": {"name": "m", "defaultMode": 0o640, "items": items}}), tmp_path / "a", SOURCES
    )
    assert (made / "a.txt").read_text() == "one"
    assert (mode(made / "a.txt"), mode(made / "run.sh")) == (0o640, 0o555)
    secret = written(mounting({"secret": {"secretName": "s"}}), tmp_path / "b", SOURCES)
    assert (mode(secret / "key"), mode(secret)) == (0o644, 0o755)


def test_a_projected_volume_has_the_files_of_all_its_sources(tmp_path):
    sources = [
        {"configMap": {"name": "m", "items": [{"key": "a.txt", "path": "config/a"}]}},
        {"secret": {"name": "s"}},
        {"secret": {"name": "none", "optional": True}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    made = written(mounting({"projected": {"sources": sources, "defaultMode": 0o400}}), tmp_path, SOURCES)
    texts = {path: (made / path).read_text() for path in ("config/a", "key", "name")}
    assert texts == {"config/a": "one", "key": "secret", "name": "web"}
    assert mode(made / "name") == 0o400


def test_a_downward_volume_has_fields_of_the_pod_and_resources_of_its_containers(tmp_path):
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "ip", "fieldRef": {"fieldPath": "status.podIP"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "app", "resource": "limits.cpu", "divisor": "1m"}},
    ]
    app = container(resources={"limits": {"cpu": "250m"}})
    volumes = [{"name": "v", "downwardAPI": {"items": items}}]
    made = written(read(pod("web", containers=[app], volumes=volumes, labels={"a": 'x"y', "b": ""}), Pod), tmp_path, {})
    texts = {path: (made / path).read_text() for path in ("labels", "ip", "cpu")}
    assert texts == {"labels": 'a="x\\"y"\nb=""', "ip": "127.77.128.1", "cpu": "250"}


def test_all_files_of_a_volume_change_at_once_and_removed_keys_disappear(tmp_path):
    """Programs watch the link `..data`, as on a cluster."""
    config = mounting({"configMap": {"name": "m"}})
    made = written(config, tmp_path, SOURCES)
    before = (made / "..data").readlink()
    assert written(config, tmp_path, SOURCES) == made
    assert (made / "..data").readlink() == before  # equal content is not written again
    written(config, tmp_path, {("ConfigMap", "m"): {"a.txt": b"two", "new": b""}})
    assert sorted(path.name for path in made.iterdir() if not path.name.startswith("..")) == ["a.txt", "new"]
    assert (made / "a.txt").read_text() == "two"
    assert not (made / before).exists()


def test_a_volume_that_a_killed_headgate_left_half_written_is_completed(tmp_path):
    config = mounting({"configMap": {"name": "m"}})
    made = written(config, tmp_path, SOURCES)
    (made / "a.txt").unlink()
    (made / "removed").symlink_to("..data/removed")
    written(config, tmp_path, SOURCES)
    assert sorted(path.name for path in made.iterdir() if not path.name.startswith("..")) == ["a.txt", "run.sh"]


def test_all_users_can_read_a_volume_whatever_the_umask_is(tmp_path):
    items = [{"key": "a.txt", "path": "deep/er/b.txt"}]
    mask = os.umask(0o077)
    try:
        made = written(mounting({"configMap": {"name": "m", "items": items}}), tmp_path, SOURCES)
    finally:
        os.umask(mask)
    assert [mode(made / path) for path in (".", "deep", "deep/er")] == [0o755] * 3


def test_a_missing_part_of_a_private_directory_is_private(tmp_path):
    host = tmp_path / "host"
    host.mkdir(mode=0o700)
    made = mounting({"hostPath": {"path": str(host)}}, subPath="a/b")
    mounts(made.spec.containers[0], materialize(VolumeInput(made, "", {}, {}), tmp_path), {})
    assert [mode(host / path) for path in ("a", "a/b")] == [0o700, 0o700]


def test_a_file_that_exists_is_not_touched(tmp_path):
    path = tmp_path / "file"
    path.touch()
    os.utime(path, (1, 1))
    written(mounting({"hostPath": {"path": str(path), "type": "FileOrCreate"}}), tmp_path, {})
    assert path.stat().st_mtime == 1


def test_the_items_of_a_volume_select_and_rename_keys(tmp_path):
    items = [{"key": "a.txt", "path": "deep/b.txt"}]
    made = written(mounting({"configMap": {"name": "m", "items": items}}), tmp_path, SOURCES)
    assert [path.name for path in made.rglob("*") if path.is_file()] == ["b.txt"]


def test_a_restart_updates_a_config_map_and_keeps_the_content_of_an_empty_dir(tmp_path):
    config = mounting({"configMap": {"name": "m", "defaultMode": 0o400}})
    written(config, tmp_path, SOURCES)
    made = written(config, tmp_path, {("ConfigMap", "m"): {"a.txt": b"two"}})
    assert (made / "a.txt").read_text() == "two"
    empty = written(mounting({"emptyDir": {}}), tmp_path / "e", {})
    (empty / "kept").touch()
    assert (written(mounting({"emptyDir": {}}), tmp_path / "e", {}) / "kept").exists()


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", ""])
def test_a_path_outside_the_volume_is_rejected(tmp_path, path):
    volume = {"configMap": {"name": "m", "items": [{"key": "a.txt", "path": path}]}}
    with pytest.raises(ConfigError, match="leads out of the volume"):
        written(mounting(volume), tmp_path, SOURCES)
    with pytest.raises(ConfigError, match="leads out of the volume"):
        written(mounting({"configMap": {"name": "m"}}), tmp_path, {("ConfigMap", "m"): {"../x": b""}})


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "none"}}, "volume v: there is no ConfigMap 'none'"),
        ({"secret": {"secretName": "s", "items": [{"key": "no", "path": "p"}]}}, "Secret 's' has no key 'no'"),
        ({"nfs": {"server": "s", "path": "/"}}, "use one of them"),
    ],
)
def test_the_error_names_the_missing_object_or_key(tmp_path, volume, message):
    with pytest.raises(ConfigError, match=message):
        written(mounting(volume), tmp_path, SOURCES)


def test_optional_volumes_may_be_empty(tmp_path):
    made = written(mounting({"configMap": {"name": "none", "optional": True}}), tmp_path, SOURCES)
    assert list(made.iterdir()) == []


def test_a_mount_shows_a_part_of_a_volume(tmp_path):
    host = tmp_path / "host"
    host.mkdir()
    volume = {"hostPath": {"path": str(host)}}
    made = mounting(volume, subPathExpr="logs/$(NAME)", readOnly=True)
    volumes = materialize(VolumeInput(made, "", {}, {}), tmp_path)
    (point,) = mounts(made.spec.containers[0], volumes, {"NAME": "web"})
    assert (point.path, point.source, point.read_only) == ("/v", str(host / "logs/web"), True)
    assert (host / "logs/web").is_dir()
    (host / "out").symlink_to("/etc")
    leaving = mounting(volume, subPath="out")
    with pytest.raises(ConfigError, match="a link that leads out of the volume"):
        mounts(leaving.spec.containers[0], volumes, {})


@pytest.mark.parametrize(
    ("type", "message"),
    [
        ("", "No such file or directory; create it, or set hostPath.type: DirectoryOrCreate"),
        ("Directory", "No such file or directory"),
        ("DirectoryOrCreate", ""),
        ("FileOrCreate", ""),
    ],
)
def test_a_host_path_must_be_what_its_type_says(tmp_path, type, message):
    path = tmp_path / "path"
    volume = mounting({"hostPath": {"path": str(path), "type": type}})
    if message:
        with pytest.raises(ConfigError, match=message):
            written(volume, tmp_path, {})
    else:
        assert written(volume, tmp_path, {}) == path
        assert path.is_dir() == (type == "DirectoryOrCreate")


def test_a_host_path_of_another_type_is_rejected(tmp_path):
    with pytest.raises(ConfigError, match="is no Socket; correct the path"):
        written(mounting({"hostPath": {"path": str(tmp_path), "type": "Socket"}}), tmp_path, {})


def test_a_claim_is_the_volume_of_its_name(tmp_path):
    volume = mounting({"persistentVolumeClaim": {"claimName": "data"}})
    assert written(volume, tmp_path, {}, {"data": tmp_path / "claim"}) == tmp_path / "claim"
    with pytest.raises(ConfigError, match="there is no PersistentVolumeClaim 'data'"):
        written(volume, tmp_path, {})
