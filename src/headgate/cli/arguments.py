"""Options and arguments of several commands of `headgate`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from headgate.cli.expanded_options import expand
from headgate.cli.output import usage_error
from headgate.manifests import STANDARD_INPUT

if TYPE_CHECKING:
    from headgate.resources.kind import Kind

DEFAULT_STATE = Path(".headgate")
PATHS = "DIR|FILE"

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="State directory of a running `headgate up`; by default $HEADGATE_STATE, else .headgate.",
        show_default=False,
    ),
]
Manifests = Annotated[
    list[Path],
    typer.Argument(
        metavar=f"{PATHS}...",
        help="Directories or files of manifests, YAML or JSON; - reads standard input.",
        show_default=False,
    ),
]


class ApiOptions(NamedTuple):
    """The options that select the API to which a command connects; empty ones select the default (docs/reference/command-line.md)."""

    kubeconfig: Path | None = None
    context: str = ""
    state: Path | None = None


_API: Mapping[str, Any] = {
    "context": Annotated[
        str, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.", show_default=False)
    ],
    "kubeconfig": Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            metavar="FILE",
            help="Kubeconfig of a cluster; by default $KUBECONFIG, else ~/.kube/config.",
            show_default=False,
        ),
    ],
    "state": State,
}


def with_api_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `api` of a command, ApiOptions, by --context, --kubeconfig and --state."""
    return expand(command, "api", _parameters(*_API), lambda values: ApiOptions(**values))


def with_cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `api` of a command that works only on a cluster by --context and --kubeconfig."""
    return expand(command, "api", _parameters("context", "kubeconfig"), lambda values: ApiOptions(**values))


def _parameters(*names: str) -> Sequence[inspect.Parameter]:
    defaults = ApiOptions()._asdict()
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=_API[name])
        for name in names
    ]


def check_paths(paths: Sequence[Path]) -> Sequence[Path]:
    """Return the paths. Raises BadParameter for a path that does not exist."""
    for path in paths:
        if path != STANDARD_INPUT and not path.exists():
            raise usage_error(f"{path} does not exist; name a directory or a file of manifests", option=PATHS)
    return paths


def parse_kind_and_name(text: str, supported: Sequence["Kind"]) -> tuple["Kind", str]:
    """Parse `KIND/NAME`, where KIND is spelled as in kubectl: `ts/a`, `trafficsplits.split.smi-spec.io/a`.

    Accepts every kind that headgate has, including kinds that are not in `supported`. Raises BadParameter for other
    kinds; the message lists the `supported` kinds.
    """
    written, _, name = text.partition("/")
    if not name or "/" in name:
        raise usage_error(
            f"{text!r} does not name an object; write KIND/NAME, as in trafficsplit/website", option="KIND/NAME"
        )
    from headgate.resources.registry import KINDS  # the kinds of all objects take 0.03 s

    for kind in (*KINDS, *supported):
        if written.lower() in spellings(kind):
            return kind, name
    names = ", ".join(dict.fromkeys(kind.names.singular for kind in supported))
    raise usage_error(f"unknown kind {written!r}; write one of {names}", option="KIND/NAME")


def spellings(kind: "Kind") -> set[str]:
    """Return all names of a kind: singular, plural, short names, and the names with the API group."""
    return {*kind.names.words} | {f"{word}.{kind.group}" for word in (kind.names.singular, kind.plural) if kind.group}
