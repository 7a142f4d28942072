"""The help pages of all commands: plain text of at most 80 columns, with examples and exit codes at the end."""

from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand

from headgate.cli.output import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_SUCCESS,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
)

_CODES = {
    EXIT_SUCCESS: "success",
    EXIT_FAILURE: "an error",
    EXIT_USAGE: "wrong usage",
    EXIT_INTERRUPTED: "interrupted",
}
UNREACHABLE = {EXIT_UNREACHABLE: "headgate, its API or its proxy can't be reached"}


class PlainEpilog:
    """A command or a group whose help page shows its epilog line by line."""

    epilog: str | None

    def format_epilog(self, _ctx: Any, formatter: Any) -> None:
        """Write the epilog."""
        formatter.write(f"\n{self.epilog}\n")


class HelpCommand(PlainEpilog, TyperCommand):
    """A command whose help page shows arguments as they are written."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line."""
        arguments = [parameter for parameter in self.params if parameter.param_type_name == "argument"]
        return ["[OPTIONS]", *(argument.make_metavar(ctx) for argument in arguments)]


def epilog(examples: Sequence[str], codes: Mapping[int, str]) -> str:
    """Return the end of a help page. `codes` has the exit codes that differ from those of every command."""
    parts = [f"Example{'s' * (len(examples) > 1)}:", *(f"  {example}" for example in examples), ""] if examples else []
    parts += ["Exit codes:", *(f"  {code:<4} {text}" for code, text in sorted({**_CODES, **codes}.items()))]
    return "\n".join(parts)
