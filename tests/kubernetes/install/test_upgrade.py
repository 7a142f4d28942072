"""Which version may follow another one (docs/versions.md)."""

import pytest

from headgate.errors import HeadgateError
from headgate.kubernetes.install.upgrade import obstacle


@pytest.mark.parametrize(
    ("running", "following"),
    [("0.1.0", "0.1.0"), ("0.1.3", "0.1.1"), ("0.1.3", "0.2.0"), ("0.9.0", "1.0.0"), ("1.4.0.dev1", "1.5.0")],
)
def test_the_same_minor_version_and_the_next_one_may_follow(running: str, following: str) -> None:
    assert obstacle(running, following) == ""


def test_a_skipped_minor_version_is_named() -> None:
    assert obstacle("0.1.3", "0.3.0").endswith("upgrade by one minor version at a time: first to 0.2")


@pytest.mark.parametrize("following", ["0.1.9", "0.2.0"])
def test_an_older_version_does_not_follow(following: str) -> None:
    assert obstacle("1.0.0" if following == "0.2.0" else "0.2.0", following).startswith("the cluster runs headgate")


def test_a_text_that_is_no_version_is_refused() -> None:
    with pytest.raises(HeadgateError, match="'next' is not a version of headgate"):
        obstacle("next", "0.1.0")
