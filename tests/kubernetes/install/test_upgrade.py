"""Which version may follow another one (docs/reference/versions.md)."""

import pytest

from headgate.errors import HeadgateError
from headgate.kubernetes.install.upgrade import next_image, obstacle


@pytest.mark.parametrize(
    ("running", "following"),
    [("0.1.0", "0.1.0"), ("0.1.3", "0.1.1"), ("0.1.3", "0.2.0"), ("0.9.0", "1.0.0"), ("1.4.0.dev1", "1.5.0")],
)
def test_the_same_minor_version_and_the_next_one_may_follow(running: str, following: str) -> None:
    assert obstacle(running, following) == ""


@pytest.mark.parametrize("following", ["0.3.0", "1.1.0", "2.0.0"])
def test_skipped_minor_versions_are_named(following: str) -> None:
    assert obstacle("0.1.3", following) == (
        f"the cluster runs headgate 0.1.3, and {following} skips minor versions; upgrade by one minor version at a time"
    )


@pytest.mark.parametrize(
    ("image", "following"),
    [
        ("ghcr.io/headgate/headgate:0.1.0", "ghcr.io/headgate/headgate:0.2.0"),
        ("registry.example:5000/mesh/headgate", "registry.example:5000/mesh/headgate:0.2.0"),
        ("headgate:1", "headgate:0.2.0"),
    ],
)
def test_the_next_image_is_from_the_same_repository(image: str, following: str) -> None:
    assert next_image(image, "0.2.0") == following


def test_an_image_by_digest_has_no_next_one() -> None:
    with pytest.raises(HeadgateError, match="name the next one with --image"):
        next_image("registry.example/headgate@sha256:0", "0.2.0")


@pytest.mark.parametrize("following", ["0.1.9", "0.2.0"])
def test_an_older_version_does_not_follow(following: str) -> None:
    assert obstacle("1.0.0" if following == "0.2.0" else "0.2.0", following).startswith("the cluster runs headgate")


def test_a_text_that_is_no_version_is_refused() -> None:
    with pytest.raises(HeadgateError, match="'next' is not a version of headgate"):
        obstacle("next", "0.1.0")
