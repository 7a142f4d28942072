"""Shell completion: kubectl runs `kubectl_complete-traffic` with the words of the command line and reads candidates.

The output has the format of cobra: each line is a candidate, a tab and a description; the last line is `:` and the number
of a directive.
"""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import typer

from headgate.cli.output import WrongUsage
from headgate.cli.traffic.api import MetricsClient, MetricsQuery, items, resource_name
from headgate.cli.traffic.app import app
from headgate.cli.traffic.kinds import KINDS, SPLITS, MetricsKind, kind_named
from headgate.cli.traffic.kubectl_proxy import Kubectl
from headgate.cli.traffic.options import split_options
from headgate.cli.traffic.top import SORT_NAMES
from headgate.errors import HeadgateError
from headgate.kinds import TAPPABLE_KINDS

_NO_SPACE, _NO_FILES = 2, 4  # cobra's ShellCompDirectiveNoSpace and NoFileComp
NAMESPACES = kind_named("namespaces")


class Candidates(NamedTuple):
    """Candidates for a word, with descriptions; `open` means that the word continues after the candidate."""

    words: Mapping[str, str]
    open: bool = False

    def output(self, begun: str) -> str:
        """Return the candidates that start with `begun`, in the format of cobra."""
        rows = [f"{word}\t{text}".rstrip() for word, text in self.words.items() if word.startswith(begun)]
        directive = _NO_FILES + _NO_SPACE * self.open
        return "\n".join([*rows, f":{directive}", ""])


NOTHING = Candidates({})


def main() -> None:
    """Print the candidates for the last word of the command line."""
    *before, begun = sys.argv[1:] or [""]
    sys.stdout.write(candidates(before, begun).output(begun))


def candidates(before: Sequence[str], begun: str) -> Candidates:
    """Return the candidates for `begun` after the words `before`; none when the API does not respond."""
    group: Any = typer.main.get_command(app)
    try:
        kubectl, words = split_options(before)
    except WrongUsage:  # the last word is the value of a kubectl option
        return NOTHING
    if not words:
        return Candidates({name: parameter.help.partition("\n")[0] for name, parameter in group.commands.items()})
    if not (command := group.commands.get(words[0])):
        return NOTHING
    options = {name: parameter for parameter in command.params for name in parameter.opts if name.startswith("-")}
    context = command.make_context(words[0], words[1:], resilient_parsing=True)
    typed = {name: value for name, value in context.params.items() if _is_typed(context, name)}
    option = options.get(words[-1])
    if option and not option.is_flag:
        return _values(kubectl, typed, option)
    if begun.startswith("-"):
        return Candidates({name: parameter.help or "" for name, parameter in options.items() if name.startswith("--")})
    return _arguments(kubectl, words[0], typed, begun)


def _is_typed(context: Any, name: str) -> bool:
    return str(context.get_parameter_source(name).name) == "COMMANDLINE"


def _values(kubectl: Kubectl, typed: Mapping[str, Any], option: Any) -> Candidates:
    """Return the candidates for the value of an option."""
    if option.name == "namespace":
        return _names(kubectl, typed, NAMESPACES)
    if option.name == "sort_by":
        return Candidates(dict.fromkeys(SORT_NAMES, ""))
    return Candidates(dict.fromkeys(getattr(option.type, "choices", ()), ""))


def _arguments(kubectl: Kubectl, command: str, typed: Mapping[str, Any], begun: str) -> Candidates:
    """Return the candidates for an argument: kinds, then names, as in `deployments web` or `deployment/web`."""
    given = typed.get("what", "")
    if command in ("version", "audit") or "name" in typed or (given and (command == "topology" or "/" in given)):
        return NOTHING
    kind, slash, _ = (given or begun).partition("/")
    if not given and not slash:
        return _kinds(command)
    try:
        return _names(kubectl, typed, kind_named(kind), f"{kind}/" * bool(slash))
    except WrongUsage:
        return NOTHING


def _kinds(command: str) -> Candidates:
    """Return the kinds that a command accepts, with a slash for commands that need a name."""
    if command == "tap":
        return Candidates({f"{names.singular}/": "" for names in TAPPABLE_KINDS}, open=True)
    if command == "edges":
        return Candidates({f"{kind.singular}/": "" for kind in KINDS if kind is not SPLITS}, open=True)
    return Candidates({kind.plural: "" for kind in KINDS})


def _names(kubectl: Kubectl, typed: Mapping[str, Any], kind: MetricsKind, prefix: str = "") -> Candidates:
    """Return the names of a kind's resources, from the API."""
    namespace = ""
    if kind.namespaced and not typed.get("all_namespaces"):
        namespace = typed.get("namespace") or kubectl.namespace()
    with contextlib.suppress(HeadgateError), kubectl.proxy() as proxy:
        resources = items(MetricsClient(proxy).list(MetricsQuery(kind=kind, namespace=namespace)))
        return Candidates({f"{prefix}{resource_name(resource)[1]}": "" for resource in resources})
    return NOTHING
