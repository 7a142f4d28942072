"""The application that runs the `headgate` commands.

The module of a command is imported only when the command runs, so that every command starts fast.
"""

import inspect
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from headgate import __version__
from headgate.cli.command_group import CommandGroup
from headgate.cli.commands import COMMANDS
from headgate.cli.help_page import UNREACHABLE, HelpCommand, epilog
from headgate.cli.output import EXIT_FAILURE, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_TIMED_OUT, EXIT_UNDECIDED

SUMMARY = "Split real traffic with Envoy proxies, as Kubernetes-style resources describe it, and show the result."
EPILOG = epilog(
    (),
    UNREACHABLE
    | {
        EXIT_FAILURE: "the check failed, or an error",
        EXIT_UNDECIDED: "a check of `plan` is undecided",
        EXIT_TIMED_OUT: "timeout",
        EXIT_NOT_EXECUTABLE: "`run` can't start the program: it is not executable",
        EXIT_NOT_FOUND: "`run` can't start the program: it does not exist",
    },
)


def load(name: str) -> Any:
    """Import the module of a command and return the command that typer runs."""
    command = COMMANDS[name]
    module, _, function = command.function.partition(":")
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    run = getattr(import_module(f"headgate.cli.{module}"), function)
    end = epilog(command.examples, command.codes)
    single.command(name, cls=HelpCommand, help=_unwrapped(run), epilog=end)(run)
    return typer.main.get_command(single)


def _unwrapped(function: Any) -> str:
    """Return the docstring of a command with each paragraph in one line, because typer's help keeps line breaks."""
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    return "\n\n".join(" ".join(text.split()) for text in paragraphs)


class Commands(CommandGroup):
    """The group of all commands, which loads the chosen command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load and return the command that the arguments name."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(str(name)), rest


app = typer.Typer(
    cls=Commands,
    help=SUMMARY,
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"headgate {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # unused here; the callback prints the version
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Make the application a group of commands; typer needs a callback for that."""


def _unloaded() -> None:
    """Stand in for every command in the list of commands; `load` imports the function of the chosen command."""


for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.summary, hidden=not _command.group, rich_help_panel=_command.group)(_unloaded)
