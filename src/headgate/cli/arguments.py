"""Options and arguments that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import Format, usage_error
from headgate.manifests import STANDARD_INPUT

if TYPE_CHECKING:
    from headgate.resources.kind import Kind

DEFAULT_STATE = Path(".headgate")

Output = Annotated[Format, typer.Option("-o", "--output", help="Output format: table, json or yaml.")]
Namespace = Annotated[
    str, typer.Option("-n", "--namespace", help="Namespace of the object; by default that of the kubeconfig's context.")
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        help="State directory of a running `headgate up`; by default $HEADGATE_STATE, else .headgate.",
        show_default=False,
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="Path of the kubeconfig; by default that of --state, else $KUBECONFIG, else that of $HEADGATE_STATE, else ~/.kube/config.",
    ),
]
Manifests = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR|FILE...",
        help="Directories or files of manifests, YAML or JSON; - reads standard input.",
        show_default=False,
    ),
]


def check_paths(paths: Sequence[Path]) -> Sequence[Path]:
    """Return the paths. Raises BadParameter for a path that does not exist."""
    for path in paths:
        if path != STANDARD_INPUT and not path.exists():
            raise usage_error(f"{path} does not exist; name a directory or a file of manifests", option="DIR|FILE")
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

    for kind in KINDS:
        if written.lower() in spellings(kind):
            return kind, name
    known = ", ".join(dict.fromkeys(kind.names.singular for kind in supported))
    raise usage_error(f"unknown kind {written!r}; write one of {known}", option="KIND/NAME")


def spellings(kind: "Kind") -> set[str]:
    """Return all names of a kind: singular, plural, short names, and the names with the API group."""
    return {*kind.names.words} | {f"{word}.{kind.group}" for word in (kind.names.singular, kind.plural) if kind.group}
