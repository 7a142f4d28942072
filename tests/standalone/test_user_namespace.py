"""The way out where user namespaces are forbidden; `tests/e2e/test_pod_networks_without_root.py` enters one."""

from pathlib import Path

import pytest

from headgate.standalone.user_namespace import remedy


@pytest.mark.parametrize(
    ("setting", "value", "command"),
    [
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
    ],
)
def test_the_setting_that_forbids_user_namespaces_is_named(
    tmp_path: Path, setting: str, value: str, command: str
) -> None:
    path = tmp_path / setting
    path.parent.mkdir()
    path.write_text(f"{value}\n")
    assert remedy(tmp_path) == f"run headgate as root, or allow them: {command}"


def test_without_such_a_setting_root_is_the_way_out(tmp_path: Path) -> None:
    assert remedy(tmp_path) == "run headgate as root"
