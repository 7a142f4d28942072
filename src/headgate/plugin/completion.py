"""Completion in shells: kubectl runs `kubectl_complete-traffic` with the words of the line, and reads candidates (cobra's
format: one a line, a tab before its description, and the number of a directive at the end).
"""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import typer

from headgate.errors import HeadgateError
from headgate.kinds import TAPPABLE_KINDS
from headgate.plugin.api import MetricsApi, Query, items, resource_name
from headgate.plugin.app import app
from headgate.plugin.errors import WrongUsage
from headgate.plugin.kinds import KINDS, SPLITS, Kind, kind_named
from headgate.plugin.kubectl_proxy import Kubectl
from headgate.plugin.options import split_options
from headgate.plugin.top import SORT_NAMES

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


def main() -> None:
    """Print what may stand in the place of the last word of the command line."""
    *before, begun = sys.argv[1:] or [""]
    sys.stdout.write(candidates(before, begun).written(begun))


def candidates(before: Sequence[str], begun: str) -> Candidates:
    """Return what may stand behind the words `before`; nothing when that can't be known, or no API answers."""
    group: Any = typer.main.get_command(app)
    try:
        kubectl, words = split_options(before)
    except WrongUsage:  # the value of one of kubectl's own options
        return NOTHING
    if not words:
        return Candidates({name: one.help.partition("\n")[0] for name, one in group.commands.items()})
    if not (command := group.commands.get(words[0])):
        return NOTHING
    options = {name: one for one in command.params for name in one.opts if name.startswith("-")}
    context = command.make_context(words[0], words[1:], resilient_parsing=True)
    typed = {name: value for name, value in context.params.items() if _is_typed(context, name)}
    waiting = options.get(words[-1])
    if waiting and not waiting.is_flag:
        return _values(kubectl, typed, waiting)
    if begun.startswith("-"):
        return Candidates({name: one.help or "" for name, one in options.items() if name.startswith("--")})
    return _arguments(kubectl, words[0], typed, begun)


def _is_typed(context: Any, name: str) -> bool:
    return str(context.get_parameter_source(name).name) == "COMMANDLINE"


def _values(kubectl: Kubectl, typed: Mapping[str, Any], option: Any) -> Candidates:
    """Return the values of an option."""
    if option.name == "namespace":
        return _names(kubectl, typed, NAMESPACES)
    if option.name == "sort_by":
        return Candidates(dict.fromkeys(SORT_NAMES, ""))
    choices = (option.metavar or "").split("|")
    return Candidates(dict.fromkeys(choices, "")) if len(choices) > 1 else NOTHING


def _arguments(kubectl: Kubectl, command: str, typed: Mapping[str, Any], begun: str) -> Candidates:
    """Return kinds, then names: `deployments web`, or `deployment/web`."""
    given = typed.get("what", "")
    if command == "version" or "name" in typed or (given and (command == "topology" or "/" in given)):
        return NOTHING
    kind, slash, _ = (given or begun).partition("/")
    if not given and not slash:
        return _kinds(command)
    try:
        return _names(kubectl, typed, kind_named(kind), f"{kind}/" * bool(slash))
    except WrongUsage:
        return NOTHING


def _kinds(command: str) -> Candidates:
    """Return the kinds that a command takes; some take one resource only."""
    if command == "tap":
        return Candidates({f"{names.singular}/": "" for names in TAPPABLE_KINDS}, open=True)
    if command == "edges":
        return Candidates({f"{one.singular}/": "" for one in KINDS if one is not SPLITS}, open=True)
    return Candidates({one.plural: "" for one in KINDS})


def _names(kubectl: Kubectl, typed: Mapping[str, Any], kind: Kind, prefix: str = "") -> Candidates:
    """Ask the API for the names of a kind's resources."""
    inside = ""
    if kind.namespaced and not typed.get("all_namespaces"):
        inside = typed.get("namespace") or kubectl.namespace()
    with contextlib.suppress(HeadgateError), kubectl.proxy() as proxy:
        found = items(MetricsApi(proxy).list(Query(kind=kind, namespace=inside)))
        return Candidates({f"{prefix}{resource_name(item)[1]}": "" for item in found})
    return NOTHING
