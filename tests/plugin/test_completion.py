"""Completion in shells, as kubectl asks for it: `kubectl __complete` is what its scripts for bash, zsh and fish run."""

import subprocess

import pytest
from tests.plugin.conftest import BIN, RecordedApi, refusal
from tests.plugin.responses import API, listed, traffic_metrics

BASE = f"/apis/{API}"


def completed(api: RecordedApi, *words: str) -> tuple[list[str], str]:
    """Return what kubectl offers in the place of the last word, without descriptions, and its directive."""
    command = [str(BIN / "kubectl"), "__complete", "traffic", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=api.environment(), check=True)
    *found, directive = done.stdout.splitlines()
    return [line.partition("\t")[0] for line in found], directive


@pytest.fixture
def pods(api: RecordedApi) -> RecordedApi:
    names = "web-1", "web-2", "shop-1"
    api.responses = {
        f"{BASE}/namespaces/default/pods": listed(*(traffic_metrics(name, 1) for name in names)),
        f"{BASE}/namespaces/shop/pods": listed(traffic_metrics("other", 1)),
        f"{BASE}/namespaces": listed(
            *(traffic_metrics(name, 1, kind="Namespace", namespace="") for name in ("a", "b"))
        ),
    }
    return api


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["top", "pods", ""], ["web-1", "web-2", "shop-1"]),
        (["top", "po", "web"], ["web-1", "web-2"]),
        (["top", "pod/w"], ["pod/web-1", "pod/web-2"]),
        (["edges", "pod/s"], ["pod/shop-1"]),
        (["top", "-o", "wide", "pods", "sh"], ["shop-1"]),
        (["top", "pods", "-n", "shop", ""], ["other"]),
        (["top", "pods", "--namespace=shop", ""], ["other"]),
        (["top", "pods", "--context", "shop", ""], ["other"]),
        (["top", "pods", "-n", ""], ["a", "b"]),
    ],
)
def test_names_are_those_that_the_api_has(pods: RecordedApi, words: list[str], offered: list[str]):
    assert completed(pods, *words) == (offered, ":4")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["t"], ["top", "topology", "tap"]),
        (["top", "st"], ["statefulsets"]),
        (["topology", "dep"], ["deployments"]),
        (["top", "pods", "-o", "j"], ["json"]),
        (["edges", "pod/foo", "--by", ""], ["each", "namespace", "kind"]),
        (["top", "pods", "--sort-by", "den"], ["denied"]),
        (["top", "--wa"], ["--watch"]),
        (["topology", "pods", ""], []),
        (["top", "pods", "a", ""], []),
        (["top", "nonsense", ""], []),
        (["top", "--context", ""], []),
    ],
)
def test_words_that_are_known_need_no_api(api: RecordedApi, words: list[str], offered: list[str]):
    assert completed(api, *words) == (offered, ":4")
    assert api.requests == []


def test_a_name_goes_on_behind_its_kind(api: RecordedApi):
    assert completed(api, "edges", "deploy") == (["deployment/"], ":6")  # no blank behind the slash
    assert completed(api, "tap", "deploy") == (["deployment/"], ":6")


def test_without_an_answer_nothing_is_offered_and_nothing_is_printed(api: RecordedApi):
    api.responses[f"{BASE}/namespaces/default/pods"] = refusal(403, "no", "Forbidden")
    assert completed(api, "top", "pods", "") == ([], ":4")
