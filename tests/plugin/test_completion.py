"""Shell completion through `kubectl __complete`, which kubectl's scripts for bash, zsh and fish run."""

import subprocess

import pytest
from tests.plugin.conftest import BIN, RecordedApi, refusal
from tests.plugin.responses import API, listed, traffic_metrics

BASE = f"/apis/{API}"


def completed(api: RecordedApi, *words: str) -> tuple[list[str], str]:
    """Return kubectl's candidates for the last word, without descriptions, and its directive."""
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
def test_completion_offers_the_names_that_the_api_has(pods: RecordedApi, words: list[str], offered: list[str]):
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
def test_static_words_are_completed_without_the_api(api: RecordedApi, words: list[str], offered: list[str]):
    assert completed(api, *words) == (offered, ":4")
    assert api.requests == []


def test_no_space_follows_a_completed_kind_and_slash(api: RecordedApi):
    assert completed(api, "edges", "deploy") == (
        ["deployment/"],
        ":6",
    )  # 6: cobra's directives NoSpace (2) and NoFileComp (4)
    assert completed(api, "tap", "deploy") == (["deployment/"], ":6")


def test_an_api_error_offers_no_candidates_and_prints_nothing(api: RecordedApi):
    api.responses[f"{BASE}/namespaces/default/pods"] = refusal(403, "no", "Forbidden")
    assert completed(api, "top", "pods", "") == ([], ":4")
