"""The launch of a container with limits, and those that join it; `tests/e2e/test_limits.py` has real control groups."""

from pathlib import Path

import pytest
from tests.make.objects import container, pod

from headgate import control_groups
from headgate.control_groups import CONTROLLERS, GroupPlace
from headgate.resources.core.pod_spec import Container, Pod
from headgate.resources.decode import read
from headgate.standalone.pods.limits import joining, limited
from headgate.standalone.pods.runs import ConfigError
from headgate.standalone.processes import Launch

LAUNCH = Launch(command=("app",), env={})


def with_memory(amount: str) -> Container:
    app = container("app", command=["app"], resources={"limits": {"memory": amount}})
    return read(pod("a", containers=[app]), Pod).spec.containers[0]


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory in which groups are made, in place of a hierarchy of the kernel."""
    monkeypatch.setattr(control_groups, "usable", lambda: [GroupPlace(tmp_path / "cgroup", CONTROLLERS, unified=True)])
    return tmp_path / "cgroup"


def test_commands_join_the_groups_of_a_container(hierarchy: Path, tmp_path: Path) -> None:
    hierarchy.mkdir()
    directory = tmp_path / "shop_web_uid1" / "app"
    assert joining(LAUNCH, directory) == LAUNCH
    launch, fault = limited(LAUNCH, with_memory("64Mi"), directory)
    assert launch.isolation
    assert (launch.isolation.control_groups, fault) == ((str(hierarchy / "headgate-uid1-app"),), "")
    assert joining(LAUNCH, directory) == launch


def test_a_container_starts_without_limits_when_its_group_can_not_be_made(hierarchy: Path, tmp_path: Path) -> None:
    directory = tmp_path / "shop_web_uid1" / "app"
    launch, fault = limited(LAUNCH, with_memory("64Mi"), directory)
    assert launch == joining(LAUNCH, directory) == LAUNCH
    assert fault.startswith(
        "resources.limits: the container has no limits, because headgate can't make its control group"
    )


def test_a_limit_that_is_no_quantity_is_an_error_of_the_container(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="quantity"):
        limited(LAUNCH, with_memory("much"), tmp_path / "app")
