"""The choice of `--network` on machines that allow no networks of pods."""

import os

import pytest

from headgate.errors import HeadgateError
from headgate.standalone import user_namespace
from headgate.standalone.network.choice import choose_network, unreachable


@pytest.fixture(autouse=True)
def without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(user_namespace, "is_entered", lambda: False)


def test_auto_says_why_pods_share_the_machines_network(caplog: pytest.LogCaptureFixture) -> None:
    assert choose_network("auto") == "host"
    (message,) = caplog.messages
    assert message.startswith("Pods share the machine's network (--network auto): only root can create")


def test_pod_without_root_is_an_error_with_the_ways_out() -> None:
    with pytest.raises(HeadgateError, match=r"run headgate as root; or start with --network host"):
        choose_network("pod")


def test_host_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert choose_network("host") == "host"
    assert caplog.messages == []


def test_collectors_that_sidecars_of_pods_cannot_reach_are_named() -> None:
    collectors = {"--otlp-collector": "127.0.0.1:4317", "--otlp-traces": "192.0.2.1:4317"}
    (message,) = unreachable(collectors)
    assert message.startswith("--otlp-collector 127.0.0.1:4317: sidecars in the networks of pods can't reach")
    assert not list(unreachable({"--otlp-collector": "", "--otlp-traces": ""}))
