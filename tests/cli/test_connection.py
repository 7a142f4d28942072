"""Which API a command uses, and what it says about the choice."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.processes import Ran

from headgate.standalone.runtime_info import RuntimeInfo, write_runtime_info

CHANGES = (
    ["rollback", "3"],
    ["rollout", "pause", "website"],
    ["ca", "rotate"],
    ["proxies", "gateway", "--log-level", "debug"],
)
READS = (["rollback", "3", "--dry-run"], ["rollout", "status", "website"], ["ca"], ["proxies"], ["wait", "ts/website"])
LOCAL, CLUSTER, OTHER = (f"http://127.0.0.1:{port}" for port in (1, 2, 3))
"""APIs that answer no request: each error names the API that was used."""


def kubeconfig(path: Path, **servers: str) -> Path:
    """Write a kubeconfig with a context for each server, of which the first is current."""
    path.parent.mkdir(exist_ok=True)
    content = {
        "clusters": [{"name": name, "cluster": {"server": server}} for name, server in servers.items()],
        "contexts": [{"name": name, "context": {"cluster": name}} for name in servers],
        "current-context": next(iter(servers)),
    }
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def local(tmp_path: Path) -> None:
    """A headgate that runs with the state directory `.headgate`."""
    state = tmp_path / ".headgate"
    config = kubeconfig(state / "kubeconfig", headgate=LOCAL)
    info = RuntimeInfo(api=LOCAL, kubeconfig=str(config), proxy="", probe="", admin="", pid=os.getpid())
    write_runtime_info(state, info)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """The user's kubeconfig, which has two contexts."""
    return kubeconfig(tmp_path / ".kube" / "config", kind=CLUSTER, other=OTHER)


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_a_change_is_refused_while_kubectl_uses_another_api_than_the_running_headgate(
    run: Callable[..., Ran], cluster: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["headgate", *words])
    command = " ".join(["headgate", *words])
    message = (
        f"error: the headgate of .headgate runs on this machine, but kubectl uses the context kind of the kubeconfig {cluster};"
        f" choose one of:\n  {command} --state .headgate\n  {command} --context kind\n"
    )
    assert run(*words) == (2, "", message)
    for options, server in ((["--state", ".headgate"], LOCAL), (["--context", "kind"], CLUSTER)):
        done = run(*words, *options)
        assert (done.code, server in done.err, "Using" in done.err) == (3, True, False), done.err


@pytest.mark.usefixtures("local", "cluster")
@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_a_question_is_for_the_running_headgate_and_says_nothing_about_it(
    run: Callable[..., Ran], words: list[str]
) -> None:
    done = run(*words)
    assert (done.code, LOCAL in done.err, "sing the" in done.err) == (3, True, False), done.err


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_a_change_names_the_api_that_it_uses(
    run: Callable[..., Ran], cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Four cases: only a kubeconfig, $KUBECONFIG and a headgate here, $HEADGATE_STATE, and only a headgate here."""
    done = run(*words)
    assert done.err.startswith(f"Using the context kind of the kubeconfig {cluster}\n")
    assert CLUSTER in done.err

    state = tmp_path / ".headgate"
    config = kubeconfig(state / "kubeconfig", headgate=LOCAL)
    write_runtime_info(
        state, RuntimeInfo(api=LOCAL, kubeconfig=str(config), proxy="", probe="", admin="", pid=os.getpid())
    )
    variable = kubeconfig(tmp_path / "variable", session=OTHER)
    monkeypatch.setenv("KUBECONFIG", str(variable))
    done = run(*words)
    assert done.err.startswith(f"Using the context session of the kubeconfig {variable}\n")
    assert OTHER in done.err

    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HEADGATE_STATE", ".headgate")
    done = run(*words)
    assert done.err.startswith("Using the headgate of .headgate on this machine\n")
    assert LOCAL in done.err

    monkeypatch.delenv("HEADGATE_STATE")
    kubeconfig(cluster, headgate=LOCAL)
    assert run(*words) == done
    cluster.unlink()
    assert run(*words) == done


@pytest.mark.usefixtures("local", "cluster")
@pytest.mark.parametrize("words", [["install"], ["uninstall"], ["upgrade"]], ids=" ".join)
def test_an_installation_is_on_the_cluster_of_the_chosen_context(run: Callable[..., Ran], words: list[str]) -> None:
    done = run(*words)
    assert done.err.startswith("Using the context kind of the kubeconfig ")
    assert CLUSTER in done.err
    done = run(*words, "--context", "other")
    assert (done.code, OTHER in done.err, "Using" in done.err) == (3, True, False), done.err


@pytest.mark.usefixtures("local")
def test_an_unknown_context_is_named_with_those_that_exist(run: Callable[..., Ran], cluster: Path) -> None:
    done = run("wait", "ts/website", "--context", "gone")
    assert (done.code, done.err) == (1, f"error: the kubeconfig {cluster} has no context 'gone'; it has kind, other\n")
