"""The command group of `headgate` and `kubectl traffic`: errors become messages and exit codes."""

from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from headgate.cli.closed_output import ending_with_its_reader
from headgate.cli.help_page import PlainEpilog
from headgate.cli.output import EXIT_INTERRUPTED, exit_code, fail
from headgate.errors import HeadgateError, usage_message


class CommandGroup(PlainEpilog, TyperGroup):
    """A group of commands that turns wrong usage and a HeadgateError into a message, without a traceback, and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the options before the command. Without arguments, print the help."""
        given = bool(args)
        with ending_with_its_reader():
            try:
                return super().parse_args(ctx, args)
            except TyperException as error:
                if given:
                    raise _usage_exit(error, ctx) from None
                typer.echo(error.format_message(), err=True)
                raise typer.Exit(error.exit_code) from None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each group, then the options."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            if not command.hidden:
                rows = groups.setdefault(getattr(command, "rich_help_panel", None) or "Commands", [])
                rows.append((name, (command.help or "").partition("\n\n")[0]))
        width = max(len(name) for rows in groups.values() for name, _ in rows)
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write nothing: the commands are before the options."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with ending_with_its_reader():
            try:
                return super().invoke(ctx)
            except TyperException as error:
                raise _usage_exit(error, ctx) from None
            except HeadgateError as error:
                fail(str(error))
                raise typer.Exit(exit_code(error)) from error
            except KeyboardInterrupt:
                raise typer.Exit(EXIT_INTERRUPTED) from None


def _usage_exit(error: TyperException, ctx: Any) -> typer.Exit:
    """Print a usage error; return the `typer.Exit` with its exit code."""
    context = getattr(error, "ctx", None) or ctx
    fail(f"{usage_message(error.format_message())}\nSee `{context.command_path} --help`.")
    return typer.Exit(error.exit_code)
