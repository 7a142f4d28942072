"""All commands and options of `headgate` and `kubectl traffic`: one meaning and one form for each option."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer
from tests.processes import Ran

from headgate.cli.app import COMMANDS, load
from headgate.cli.traffic.app import app as traffic

SHORT = {
    "-A": {"--all-namespaces"},
    "-H": {"--header"},
    "-X": {"--request"},
    "-c": {"--container"},
    "-d": {"--data"},
    "-f": {"--filename"},
    "-h": {"--help"},
    "-l": {"--selector"},
    "-n": {"--namespace"},
    "-o": {"--output"},
    "-p": {"--previous"},
    "-v": {"--verbose"},
    "-w": {"--watch"},
}
"""The meaning of each short option."""
METAVARS = {
    "--api-address": "HOST:PORT",
    "--at": "REVISION",
    "--base": "DIR|FILE",
    "--ca-cert": "FILE",
    "--ca-key": "FILE",
    "--cert-manager-issuer": "KIND/NAME",
    "--certificate-lifetime": "DURATION",
    "--concurrency": "NUMBER",
    "--container": "NAME",
    "--context": "NAME",
    "--data": "TEXT",
    "--delete": "KIND/NAME",
    "--domain": "NAME",
    "--exclude": "NAMESPACE/ACCOUNT",
    "--excluded-addresses": "CIDRS",
    "--excluded-inbound-ports": "PORTS",
    "--excluded-outbound-ports": "PORTS",
    "--excluded-users": "UIDS",
    "--filename": "DIR|FILE",
    "--for": "DURATION",
    "--from": "KIND/NAME",
    "--from-traffic": "DURATION|FILE",
    "--gateway": "NAME[.NAMESPACE]",
    "--header": "'NAME: VALUE'",
    "--image": "IMAGE",
    "--kubeconfig": "FILE",
    "--label": "KEY=VALUE",
    "--limit": "NUMBER",
    "--listen": "ADDRESS",
    "--localhost-port": "NUMBER",
    "--max-rps": "NUMBER",
    "--metrics": "FILE",
    "--metrics-address": "HOST:PORT",
    "--metrics-source": "prometheus=URL",
    "--name": "NAME",
    "--namespace": "NAME",
    "--namespaces": "NAME[,NAME]",
    "--never": "FROM TO",
    "--nginx-image": "IMAGE",
    "--node": "ID",
    "--number": "NUMBER",
    "--otlp-collector": "HOST:PORT",
    "--otlp-traces": "HOST:PORT",
    "--output-dir": "DIR",
    "--port": "[NAME=]PORT",
    "--proxy-address": "HOST:PORT",
    "--proxy-concurrency": "NUMBER",
    "--proxy-cpu": "QUANTITY",
    "--proxy-cpu-limit": "QUANTITY",
    "--proxy-log-level": "LEVEL",
    "--proxy-memory": "QUANTITY",
    "--proxy-memory-limit": "QUANTITY",
    "--pull-secrets": "NAME[,NAME]",
    "--reload": "COMMAND",
    "--replicas": "NUMBER",
    "--request": "METHOD",
    "--revision": "NAME",
    "--selector": "SELECTOR",
    "--server-name": "NAME",
    "--service": "NAME[.NAMESPACE]",
    "--service-account": "NAME",
    "--sort-by": "COLUMN",
    "--state": "DIR",
    "--tail": "NUMBER",
    "--timeout": "DURATION",
    "--trace-sampling": "PERCENT",
    "--trust-domain": "NAME",
    "--via": "gateway/NAME",
    "--volume-sync": "DURATION",
    "--window": "DURATION",
}
"""What each option with a value expects; an option with a list of choices shows the list."""
OTHER_METAVARS = {("headgate dashboard", "--port"): "PORT"}
"""Options of a command that expect less than the same option of another command."""
ONLY_HERE = {"headgate up", "headgate down", "headgate run", "headgate version"}
"""Commands that use this machine and no API of a cluster."""
ONLY_CLUSTER = {"headgate install", "headgate uninstall", "headgate upgrade"}
WITHOUT_API = {"headgate compile", "headgate control-plane", "headgate inject", "headgate redirect"}
OF_THE_MESH = {"headgate ca", "headgate status"}
"""Commands about the whole mesh, whose answer no namespace limits."""
ALL_FORMATS = {"table", "json", "yaml"}
FORMATS = {
    "headgate compile": {"json", "yaml"},
    "headgate inject": {"json", "yaml"},
    "headgate up": {"text", "json"},
    "kubectl traffic edges": {*ALL_FORMATS, "wide"},
    "kubectl traffic tap": {"text", "json"},
    "kubectl traffic top": {*ALL_FORMATS, "wide"},
    "kubectl traffic topology": {"terminal", "wide", "dot", "mermaid", "svg", "json", "yaml"},
}
"""The output formats of commands that differ from `ALL_FORMATS`."""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its name."""
    for name in COMMANDS:
        yield f"headgate {name}", load(name)
    group: Any = typer.main.get_command(traffic)
    for name, command in group.commands.items():
        yield f"kubectl traffic {name}", command


EVERY = dict(commands())
OPTIONS = [
    (name, option)
    for name, command in EVERY.items()
    for option in command.params
    if option.param_type_name == "option" and option.name != "help"
]
DURATIONS = sorted(
    (name, option.opts[-1]) for name, option in OPTIONS if METAVARS.get(option.opts[-1], "").startswith("DURATION")
)
# What a command needs besides the option under test.
ARGUMENTS = {
    "headgate ca": [],
    "headgate control-plane": ["--image", "a"],
    "headgate generate": ["traffictargets"],
    "headgate install": [],
    "headgate uninstall": [],
    "headgate proxies": ["gateway", "--log-level", "debug"],
    "headgate restart": ["--outdated"],
    "headgate rollout": ["status", "website"],
    "headgate try": ["http://website/"],
    "headgate up": ["."],
    "headgate upgrade": [],
    "headgate wait": ["ts/website"],
}


def test_a_short_option_has_one_meaning() -> None:
    meanings: dict[str, set[str]] = {"-h": {"--help"}}
    for _, option in OPTIONS:
        long = [text for text in option.opts if text.startswith("--")]
        for text in set(option.opts) - set(long):
            meanings.setdefault(text, set()).update(long)
    assert meanings == SHORT


def test_a_long_option_has_the_same_short_option_in_all_commands() -> None:
    lengths: dict[str, set[int]] = {}
    for _, option in OPTIONS:
        lengths.setdefault(option.opts[-1], set()).add(len(option.opts))
    assert [long for long, lengths in lengths.items() if len(lengths) > 1] == []


def test_an_option_says_what_it_expects() -> None:
    valued = [(name, option) for name, option in OPTIONS if not option.is_flag and not has_choices(option)]
    expected = {(name, option.opts[-1]): option.metavar for name, option in valued}
    assert expected == {(name, option): METAVARS[option] for name, option in expected} | OTHER_METAVARS
    assert {option for _, option in expected} == METAVARS.keys()


def has_choices(option: Any) -> bool:
    return hasattr(option.type, "choices")


def test_every_option_and_argument_has_a_help_text() -> None:
    without = [
        (name, parameter.name)
        for name, command in EVERY.items()
        for parameter in command.params
        if not getattr(parameter, "help", "")
    ]
    assert without == []


@pytest.mark.parametrize("name", sorted(name for name in EVERY if name.startswith("headgate ")))
def test_commands_that_reach_an_api_have_the_options_that_select_it(name: str) -> None:
    offered = {option.name for of, option in OPTIONS if of == name} & {"context", "kubeconfig", "state", "namespace"}
    if name in ONLY_HERE:
        assert offered - {"namespace"} == {"state"}
    elif name in ONLY_CLUSTER:
        assert offered == {"context", "kubeconfig"}
    elif name in WITHOUT_API:
        assert offered == set()
    else:
        assert offered == {"context", "kubeconfig", "state"} | (
            {"namespace"} - ({"namespace"} if name in OF_THE_MESH else set())
        )


def test_output_formats_are_the_same_in_all_commands() -> None:
    formats = {name: set(option.type.choices) for name, option in OPTIONS if option.name == "output"}
    assert {name: choices for name, choices in formats.items() if choices != ALL_FORMATS} == FORMATS


@pytest.mark.parametrize("text", ["10", "1d", "ten"])
@pytest.mark.parametrize(("name", "option"), [pair for pair in DURATIONS if pair[0].startswith("headgate")])
def test_a_wrong_duration_is_an_error_that_names_the_option_and_the_form(
    run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, name: str, option: str, text: str
) -> None:
    monkeypatch.setenv("POD_NAME", "headgate-1")
    ran = run(*name.split()[1:], *ARGUMENTS[name], option, text)
    assert ran.code == 2
    assert f"'{option}'" in ran.err
    assert f"{text!r} is " in ran.err
    assert "duration" in ran.err
    assert "10s" in ran.err or "12h" in ran.err
