from typing import Any

import pytest
from tests.make.objects import container, pod

from headgate.resources.core.pod_spec import Pod
from headgate.resources.decode import read
from headgate.standalone.pods.environment import ConfigError, Mount
from headgate.standalone.pods.volumes import materialize, mounts

SOURCES = {("ConfigMap", "m"): {"a.txt": b"one", "run.sh": b"#!/bin/sh\n"}, ("Secret", "s"): {"key": b"secret"}}


def mounting(volume: dict[str, Any], **mount: Any) -> Pod:
    """Return a pod whose container mounts a volume."""
    app = container(volumeMounts=[{"name": "v", "mountPath": "/v", **mount}])
    return read(pod("web", containers=[app], volumes=[{"name": "v", **volume}]), Pod)


def test_config_maps_and_secrets_become_private_files(tmp_path):
    made = materialize(mounting({"configMap": {"name": "m", "defaultMode": 0o755}}), tmp_path / "a", SOURCES)["v"]
    assert (made / "a.txt").read_text() == "one"
    assert (made / "run.sh").stat().st_mode & 0o777 == 0o700
    secret = materialize(mounting({"secret": {"secretName": "s"}}), tmp_path / "b", SOURCES)["v"]
    assert (secret / "key").stat().st_mode & 0o777 == 0o600
    assert secret.stat().st_mode & 0o777 == 0o700


def test_the_items_of_a_volume_select_and_rename_keys(tmp_path):
    items = [{"key": "a.txt", "path": "deep/b.txt"}]
    made = materialize(mounting({"configMap": {"name": "m", "items": items}}), tmp_path, SOURCES)["v"]
    assert [path.name for path in made.rglob("*") if path.is_file()] == ["b.txt"]


def test_a_restart_updates_a_config_map_and_keeps_the_content_of_an_empty_dir(tmp_path):
    config = mounting({"configMap": {"name": "m", "defaultMode": 0o400}})
    materialize(config, tmp_path, SOURCES)
    made = materialize(config, tmp_path, {("ConfigMap", "m"): {"a.txt": b"two"}})["v"]
    assert (made / "a.txt").read_text() == "two"
    empty = materialize(mounting({"emptyDir": {}}), tmp_path / "e", {})["v"]
    (empty / "kept").touch()
    assert (materialize(mounting({"emptyDir": {}}), tmp_path / "e", {})["v"] / "kept").exists()


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", ""])
def test_a_path_outside_the_volume_is_rejected(tmp_path, path):
    volume = {"configMap": {"name": "m", "items": [{"key": "a.txt", "path": path}]}}
    with pytest.raises(ConfigError, match="leads out of the volume"):
        materialize(mounting(volume), tmp_path, SOURCES)
    with pytest.raises(ConfigError, match="leads out of the volume"):
        materialize(mounting({"configMap": {"name": "m"}}), tmp_path, {("ConfigMap", "m"): {"../x": b""}})


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "none"}}, "volume v: there is no ConfigMap 'none'"),
        ({"secret": {"secretName": "s", "items": [{"key": "no", "path": "p"}]}}, "Secret 's' has no key 'no'"),
        ({"projected": {}}, "use one of them"),
    ],
)
def test_the_error_names_the_missing_object_or_key(tmp_path, volume, message):
    with pytest.raises(ConfigError, match=message):
        materialize(mounting(volume), tmp_path, SOURCES)


def test_optional_volumes_may_be_empty(tmp_path):
    made = materialize(mounting({"configMap": {"name": "none", "optional": True}}), tmp_path, SOURCES)["v"]
    assert list(made.iterdir()) == []


def test_a_mount_maps_its_path_to_the_directory_of_its_volume(tmp_path):
    made = mounting({"hostPath": {"path": "/srv"}}, subPath="x")
    volumes = materialize(made, tmp_path, {})
    assert mounts(made.spec.containers[0], volumes) == [Mount("/v", "/srv/x")]
