"""Options that several commands share, and the kubectl way to name an object."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.output import Format, usage_error
from headgate.manifests import STANDARD_INPUT
from headgate.resources.registry import KINDS, Kind

DEFAULT_STATE = Path(".headgate")

Output = Annotated[Format, typer.Option("-o", "--output", help="Answer as a table, or as json or yaml for scripts.")]
Namespace = Annotated[
    str, typer.Option("-n", "--namespace", help="Namespace of the object; the kubeconfig's by default.")
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        help="State directory of a running `headgate up`; then $HEADGATE_STATE, then .headgate.",
        show_default=False,
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="Kubeconfig to use; then --state, then $KUBECONFIG, then .headgate."),
]
Manifests = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR|FILE...",
        help="Directories or files of manifests, YAML or JSON; - is standard input.",
        show_default=False,
    ),
]


def check_paths(paths: Sequence[Path]) -> Sequence[Path]:
    """Return the paths when all exist; a path that does not is wrong usage."""
    for path in paths:
        if path != STANDARD_INPUT and not path.exists():
            raise usage_error(f"{path} does not exist; name a directory or a file of manifests", option="DIR|FILE")
    return paths


def parse_kind_and_name(text: str) -> tuple[Kind, str]:
    """Read `KIND/NAME` with any spelling of the kind that kubectl knows: `ts/a`, `trafficsplits.split.smi-spec.io/a`."""
    written, _, name = text.partition("/")
    if not name or "/" in name:
        raise usage_error(
            f"{text!r} does not name an object; write KIND/NAME, as in trafficsplit/website", option="KIND/NAME"
        )
    for kind in KINDS:
        if written.lower() in spellings(kind):
            return kind, name
    known = ", ".join(dict.fromkeys(kind.singular for kind in KINDS))
    raise usage_error(f"there is no kind {written!r}; known are {known}", option="KIND/NAME")


def spellings(kind: Kind) -> set[str]:
    """Return the words that mean a kind."""
    return {*kind.words} | {f"{word}.{kind.group}" for word in (kind.singular, kind.plural) if kind.group}
