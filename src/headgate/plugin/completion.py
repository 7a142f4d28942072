"""Completion in shells: kubectl runs `kubectl_complete-traffic` with the words of the line, and reads candidates (cobra's
format: one a line, a tab before its description, and the number of a directive at the end).
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import typer

from headgate.errors import HeadgateError
from headgate.kinds import TAPPED
from headgate.plugin.api import Api, Asked, items, name_of
from headgate.plugin.app import app
from headgate.plugin.errors import WrongUsage
from headgate.plugin.kinds import KINDS, SPLITS, Kind, kind_named
from headgate.plugin.options import divided
from headgate.plugin.top import sort_names
from headgate.plugin.transport import Kubectl

_NO_SPACE, _NO_FILES = 2, 4
NAMESPACES = kind_named("namespaces")


class Candidates(NamedTuple):
    """What may stand next, with descriptions. `open`: more of the same word follows."""

    words: Mapping[str, str]
    open: bool = False

    def written(self, begun: str) -> str:
        """Return those that begin with what is there, as kubectl reads them."""
        found = [f"{word}\t{text}".rstrip() for word, text in self.words.items() if word.startswith(begun)]
        directive = _NO_FILES + _NO_SPACE * self.open
        return "\n".join([*found, f":{directive}", ""])


NOTHING = Candidates({})


class _Typed(NamedTuple):
    """The words before the one that is completed: kubectl's options, the command, its arguments and its options."""

    kubectl: Kubectl
    command: str
    arguments: tuple[str, ...]
    options: Mapping[str, str]
    waiting: str = ""  # the option whose value comes next


def main() -> None:
    """Print what may stand in the place of the last word of the command line."""
    *before, begun = sys.argv[1:] or [""]
    sys.stdout.write(candidates(before, begun).written(begun))


def candidates(before: Sequence[str], begun: str) -> Candidates:
    """Return what may stand behind the words `before`; nothing when that can't be known, or no API answers."""
    try:
        kubectl, rest = divided(before)
    except WrongUsage:  # the value of one of kubectl's own options
        return NOTHING
    group: Any = typer.main.get_command(app)
    commands: Mapping[str, Any] = group.commands
    typed = _typed(kubectl, rest, commands)
    command = commands.get(typed.command)
    if command is None:
        return (
            NOTHING
            if typed.command
            else Candidates({name: one.help.partition("\n")[0] for name, one in commands.items()})
        )
    if typed.waiting:
        return _values(typed, _options(command)[typed.waiting])
    if begun.startswith("-"):
        return Candidates({name: one.help or "" for name, one in _options(command).items() if name.startswith("--")})
    return _arguments(typed, begun)


def _typed(kubectl: Kubectl, words: Iterable[str], commands: Mapping[str, Any]) -> _Typed:
    command, waiting = "", ""
    arguments: list[str] = []
    options: dict[str, str] = {}
    for word in words:
        known = _options(commands[command]) if command in commands else {}
        name, equals, value = word.partition("=")
        if waiting:
            options[_named(known[waiting])], waiting = word, ""
        elif name in known:
            waiting = "" if equals or known[name].is_flag else name
            options[_named(known[name])] = value
        elif command:
            arguments.append(word)
        else:
            command = word
    return _Typed(kubectl, command, tuple(arguments), options, waiting)


def _options(command: Any) -> Mapping[str, Any]:
    """Return the options of a command by each of their names."""
    return {name: one for one in command.params for name in one.opts if name.startswith("-")}


def _named(option: Any) -> str:
    return str(option.name)


def _values(typed: _Typed, option: Any) -> Candidates:
    """Return the values of an option."""
    if option.name == "namespace":
        return _names(typed, NAMESPACES)
    if option.name == "sort_by":
        return Candidates(dict.fromkeys(sort_names(), ""))
    choices = (option.metavar or "").split("|")
    return Candidates(dict.fromkeys(choices, "")) if len(choices) > 1 else NOTHING


def _arguments(typed: _Typed, begun: str) -> Candidates:
    """Return kinds, then names: `deployments web`, or `deployment/web`."""
    named = typed.command != "topology"
    if typed.command == "version" or len(typed.arguments) > named:
        return NOTHING
    kind, slash, _ = (typed.arguments[0] if typed.arguments else begun).partition("/")
    if not typed.arguments and not slash:
        return _kinds(typed.command)
    if typed.arguments and slash:
        return NOTHING
    try:
        return _names(typed, kind_named(kind), f"{kind}/" * bool(slash))
    except WrongUsage:
        return NOTHING


def _kinds(command: str) -> Candidates:
    """Return the kinds that a command takes; some take one resource only."""
    if command == "tap":
        return Candidates({f"{names.singular}/": "" for names in TAPPED}, open=True)
    if command == "edges":
        return Candidates({f"{one.singular}/": "" for one in KINDS if one is not SPLITS}, open=True)
    return Candidates({one.plural: "" for one in KINDS})


def _names(typed: _Typed, kind: Kind, prefix: str = "") -> Candidates:
    """Ask the API for the names of a kind's resources."""
    inside = ""
    if kind.namespaced and "all_namespaces" not in typed.options:
        inside = typed.options.get("namespace") or typed.kubectl.namespace()
    with contextlib.suppress(HeadgateError), typed.kubectl.proxy() as proxy:
        return Candidates(dict.fromkeys(_found(Api(proxy), Asked(kind=kind, namespace=inside), prefix), ""))
    return NOTHING


def _found(api: Api, asked: Asked, prefix: str) -> Iterator[str]:
    return (f"{prefix}{name_of(item)[1]}" for item in items(api.list(asked)))
