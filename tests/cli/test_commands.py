import asyncio
import itertools
import json
import os
import signal
import socket
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.cli.up import _run
from headgate.errors import HeadgateError
from headgate.standalone.processes import Launch, spawn
from headgate.standalone.runtime_info import RuntimeInfo, write_runtime_info
from headgate.standalone.state_directory import lock
from headgate.standalone.supervisor import ProgramRecord


def test_help_pages_wrap_paragraphs_at_the_terminal_width(run: Callable[..., Any]) -> None:
    lines = [line.split() for line in run("try", "--help").out.splitlines()]
    first = next(number for number, words in enumerate(lines) if words[:2] == ["With", "--from,"])
    paragraph = lines[first : lines.index([], first)]
    width = max(len(" ".join(words)) for words in paragraph)
    for words, following in itertools.pairwise(paragraph):
        assert len(" ".join([*words, following[0]])) > width


def test_down_suggests_ctrl_c_while_a_headgate_runs(run: Callable[..., Any], tmp_path: Path) -> None:
    with lock(tmp_path):
        ended = run("down", "--state", str(tmp_path))
    assert ended.code == 1
    assert (
        f"a headgate runs with the state directory {tmp_path}, but `headgate down` stops only the processes of a killed "
        "headgate" in ended.err
    )
    assert "press Ctrl-C in the terminal of `headgate up`" in ended.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["chek"], "Did you mean 'check'?"),
        (["compile"], "Missing argument"),
        (["check", "nowhere"], "nowhere does not exist; name a directory or a file of manifests"),
        (["check", ".", "--colour"], "No such option"),
        (["wait", "website"], "write KIND/NAME"),
        (
            ["wait", "trafficsplt/website"],
            "write one of deployment, gateway, listenerset, httproute, grpcroute, tcproute, tlsroute, udproute, backendtlspolicy, xbackend, xbackendtrafficpolicy, xauthorizationpolicy, trafficsplit, traffictarget, tlsconfig",
        ),
        (
            ["logs", "foo/website"],
            "unknown kind 'foo'; write one of pod, deployment, replicaset, statefulset, daemonset",
        ),
        (["wait", "configmap/website"], "the kinds are deployment, gateway"),
        (["wait", "svc/web"], "(deployment/NAME) and for what routes its requests (trafficsplit/NAME,"),
        (["wait", "service/web"], "`headgate explain http://web/` shows its ready endpoints"),
        (["wait", "pod/web-1"], "`kubectl wait --for=condition=Ready pod/web-1`"),
        (["wait", "ts/website", "--timeout", "soon"], "write for example 10s, 1m30s or 2h"),
        (["logs", "svc/website"], "a Service has no logs"),
        (["try", "https://website"], "the scheme https is not supported"),
        (["try", "http://website:99999"], "no usable port"),
        (["try", "http://"], "has no valid host"),
        (["up", ".", "--metrics-by", "pod"], "also set --metrics-address"),
        (["up", ".", "--watch", "-o", "json"], "'--watch': --watch and -o json exclude each other"),
        (["up", ".", "-o", "yaml"], "'-o'"),
        (["check", ".", "-o", "jsn"], "'-o' / '--output': 'jsn' is not one of 'table', 'json', 'yaml'"),
        (["try", "website", "-H", "no colon"], "write 'name: value'"),
        (["try", "website", "-H", "a: b\r\nc: d"], "write 'name: value'"),
        (["try", "website", "-H", "Content-Length: 3"], "Content-Length is computed from the URL"),
        (["try", "website", "-X", "GET /"], "not a supported method"),
        (["--nonsense"], "No such option: --nonsense"),
        (["try", "website", "--number", "many"], "'many' is not a whole number."),
        (["try", "website", "--timeout", "long"], "'--timeout': 'long' is not a duration"),
        (["try", "website", "--timeout", "0s"], "'--timeout': must be longer than 0s"),
        (["wait", "ts/a", "--state", ".headgate", "--context", "a"], "leave out --kubeconfig and --context"),
        (["check", ".", "-n", "shop"], "'--namespace': is for the running mesh"),
        (["ca", "roots", "-o", "json"], "for JSON or YAML use `ca status`"),
        (["proxies", "gateway", "--log-level", "debug", "-o", "json"], "leave out -o"),
        (["try", "website", "--number", "0"], "0 is not in the range x>=1"),
    ],
)
def test_wrong_usage_exits_with_2_and_two_lines_on_stderr(
    run: Callable[..., Any], arguments: list[str], expected: str
) -> None:
    ended = run(*arguments)
    assert ended.code == 2
    assert expected in ended.err
    assert len(ended.err.strip().splitlines()) == 2
    assert "--help" in ended.err
    assert not ended.out


@pytest.mark.parametrize(
    "command",
    [["wait", "ts/website"], ["try", "website"], ["logs", "web"], ["run", "--", "true"]],
    ids=lambda words: words[0],
)
def test_commands_without_a_running_headgate_suggest_headgate_up(run: Callable[..., Any], command: list[str]) -> None:
    ended = run(*command)
    assert ended.code == 3
    assert "no headgate runs with the state directory .headgate: start headgate with `headgate up DIR`" in ended.err
    assert ("does not work with one in a cluster" in ended.err) is (command[0] == "run")


@pytest.mark.parametrize("command", [["wait", "ts/a"], ["status"], ["explain", "pod/a"]])
def test_commands_use_the_kubeconfig_of_kubectl_when_no_headgate_runs_here(
    run: Callable[..., Any], command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`headgate install` and kubectl use this file too."""
    kubeconfig = {
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a"}}],
        "current-context": "a",
    }
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(json.dumps(kubeconfig))
    ended = run(*command)
    assert ended.code == 3
    assert "no API answers at http://127.0.0.1:1" in ended.err
    assert "check the cluster that the kubeconfig names" in ended.err
    assert "no headgate runs with the state directory .headgate" in run(*command, "--state", ".headgate").err
    for missing in ("gone", f"gone{os.pathsep}lost"):
        monkeypatch.setenv("KUBECONFIG", missing)
        ended = run(*command)
        assert ended.code == 3
        assert "the kubeconfig gone does not exist" in ended.err


def test_the_version_option_prints_the_version(run: Callable[..., Any]) -> None:
    assert run("--version") == (0, f"headgate {version('headgate')}\n", "")


@pytest.mark.parametrize("command", [["wait", "ts/a"], ["explain", "http://a/"], ["logs", "a"], ["ca"]])
def test_an_unreachable_api_exits_with_3(
    run: Callable[..., Any], command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three cases: a missing kubeconfig, a closed port, and a server that accepts connections but does not respond."""
    monkeypatch.setattr("headgate.kubernetes.transport.ANSWER_S", 0.2)
    missing = run(*command, "--kubeconfig", "missing")
    assert missing.code == 3
    assert "the kubeconfig missing does not exist" in missing.err
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kubeconfig = {
            "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a"}}],
            "current-context": "a",
        }
        (tmp_path / "config").write_text(json.dumps(kubeconfig))
        ended = run(*command, "--kubeconfig", "config")
        assert ended.code == 3
        assert "no answer in time" in ended.err
    ended = run(*command, "--kubeconfig", "config")
    assert ended.code == 3
    assert "no API answers" in ended.err


def test_version_shows_headgate_and_envoy_when_nothing_runs(run: Callable[..., Any]) -> None:
    found = json.loads(run("version", "-o", "json").out)
    assert found["headgate"].count(".") == 2
    assert found["envoy"].startswith("1.")
    assert found["instance"] is None
    assert "running   nothing" in run("version").out


@pytest.mark.parametrize("below", ["", "canary"])
@pytest.mark.parametrize(("command", "code"), [("version", 0), ("status", 3)])
def test_processes_that_a_killed_headgate_left_are_named(
    run: Callable[..., Any], tmp_path: Path, command: str, code: int, below: str
) -> None:
    """`make run` has a state directory for each example, in the default one."""
    state = tmp_path / below
    container = state / "pods" / "default_web-1_uid" / "main"
    container.mkdir(parents=True)
    (state / "lock").touch()

    async def start() -> int:
        process = spawn(Launch(command=("sleep", "600"), env={}, cwd=""), tmp_path / "log")
        record = ProgramRecord(identity=process.identity, fingerprint="127.0.0.1")
        (container / "run.json").write_bytes(msgspec.json.encode(record))
        process.detach()
        return process.identity.pid

    pid = asyncio.run(start())
    try:
        ended = run(command, "--state", str(tmp_path))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert ended.code == code
    text = f"a process of a killed headgate still runs (container main of pod default/web-1, process {pid})"
    words = f"`headgate up --state {state}` adopts what is left, `headgate down --state {state}` stops it"
    assert f"{text}: {words}" in ended.out + ended.err
    again = run(command, "--state", str(tmp_path))
    assert "still run" not in again.out + again.err


def test_a_headgate_that_runs_with_a_state_directory_in_the_given_one_is_named(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    state = tmp_path / "canary"
    state.mkdir()
    (state / "lock").touch()
    info = RuntimeInfo(api="https://a", kubeconfig="", proxy="", probe="", admin="", pid=os.getpid())
    write_runtime_info(state, info)
    text = f"a headgate runs with --state {state} (process {os.getpid()})"
    assert text in run("status", "--state", str(tmp_path)).err
    assert text in run("version", "--state", str(tmp_path)).out
    document = json.loads(run("version", "--state", str(tmp_path), "-o", "json").out)
    assert document["below"]["canary"]["instance"]["pid"] == os.getpid()


def test_version_names_the_variable_to_correct_if_envoy_is_missing(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_ENVOY", "/nowhere/envoy")
    assert "correct HEADGATE_ENVOY" in run("version").out


def test_the_shell_completes_commands_and_options(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_HEADGATE_COMPLETE", "complete_bash")
    for words, word, wanted in (("headgate w", "1", "wait"), ("headgate wait --tim", "2", "--timeout")):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", word)
        assert wanted in run().out.split()


async def together(*errors: Exception) -> None:
    """Raise errors in concurrent tasks of a nested task group."""

    async def fail(error: Exception) -> None:
        raise error

    async with asyncio.TaskGroup(), asyncio.TaskGroup() as tasks:
        for error in errors:
            tasks.create_task(fail(error))


def test_an_error_of_a_task_is_raised_without_its_exception_group() -> None:
    """For an exception group, Python would print a traceback."""
    with pytest.raises(HeadgateError, match=r"^the port is taken$"):
        _run(together(HeadgateError("the port is taken"), HeadgateError("another")))


def test_an_exception_group_with_a_bug_is_raised_unchanged() -> None:
    with pytest.raises(ExceptionGroup):
        _run(together(HeadgateError("the port is taken"), KeyError("a bug")))
