"""Shell completion: the plugin's candidates, and `kubectl __complete`, which kubectl's scripts for shells run."""

import subprocess

import pytest
from tests.cli.traffic.conftest import BIN, RecordedApi, refusal
from tests.cli.traffic.responses import API, listed, traffic_metrics

from headgate.cli.traffic.completion import candidates

BASE = f"/apis/{API}"


def parsed(output: str) -> tuple[list[str], str]:
    """Return the candidates in cobra's format, without descriptions, and the directive."""
    *lines, directive = output.splitlines()
    return [line.partition("\t")[0] for line in lines], directive


def completed(api: RecordedApi, *words: str) -> tuple[list[str], str]:
    """Return kubectl's candidates for the last word."""
    command = [str(BIN / "kubectl"), "__complete", "traffic", *words]
    return parsed(subprocess.run(command, capture_output=True, text=True, env=api.environment(), check=True).stdout)


def offers(*words: str) -> tuple[list[str], str]:
    """Return the plugin's candidates for the last word; only kubectl's requests to the API are programs."""
    return parsed(candidates(words[:-1], words[-1]).output(words[-1]))


@pytest.fixture
def without_kubectl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.fixture
def pods(api: RecordedApi, monkeypatch: pytest.MonkeyPatch) -> RecordedApi:
    for variable in ("PATH", "KUBECONFIG"):
        monkeypatch.setenv(variable, api.environment()[variable])
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
@pytest.mark.usefixtures("pods")
def test_completion_offers_the_names_that_the_api_has(words: list[str], offered: list[str]):
    assert offers(*words) == (offered, ":4")


def test_kubectl_offers_what_the_plugin_offers(pods: RecordedApi):
    assert completed(pods, "top", "pods", "--context", "shop", "") == (["other"], ":4")
    assert completed(pods, "t") == (["top", "topology", "tap"], ":4")
    assert completed(pods, "edges", "deploy") == (["deployment/"], ":6")


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
@pytest.mark.usefixtures("without_kubectl")
def test_static_words_are_completed_without_the_api(words: list[str], offered: list[str]):
    assert offers(*words) == (offered, ":4")


@pytest.mark.usefixtures("without_kubectl")
@pytest.mark.parametrize("command", ["edges", "tap"])
def test_no_space_follows_a_completed_kind_and_slash(command: str):
    """The directive 6 is the sum of cobra's NoSpace (2) and NoFileComp (4)."""
    assert offers(command, "deploy") == (["deployment/"], ":6")


def test_an_api_error_offers_no_candidates_and_prints_nothing(api: RecordedApi):
    api.responses[f"{BASE}/namespaces/default/pods"] = refusal(403, "no", "Forbidden")
    assert completed(api, "top", "pods", "") == ([], ":4")
