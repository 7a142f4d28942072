"""The table of commands. A command's module is imported only when the command is run, so that each one starts fast."""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from headgate import __version__
from headgate.cli.output import EXIT_INTERRUPTED, exit_code, fail
from headgate.errors import HeadgateError, usage_message

SUMMARY = "Splits real traffic through real Envoy proxies, as Kubernetes-style resources say, and shows it."
EPILOG = (
    "Exit codes: 0 fine; 1 the answer is no, or errors were found; 2 wrong usage; 3 no headgate, or no proxy, to be"
    " reached; 124 timeout; 126 and 127 `run` can't start the program; 130 interrupted."
)


class Command(NamedTuple):
    """Where a command is (`module:function` below `headgate.cli`), and the first line of its help."""

    place: str
    summary: str


COMMANDS: Mapping[str, Command] = {
    "up": Command("up:up", "Run a directory of manifests on this machine."),
    "down": Command("down:down", "End what a killed headgate left running."),
    "check": Command("check:check", "Find what is wrong with manifests, offline."),
    "compile": Command("compile:compile_", "Print what manifests become, at any stage."),
    "explain": Command("explain:explain_", "Say where a request would go, and why not elsewhere."),
    "try": Command("try_command:try_", "Send requests through the mesh; compare with what is wanted."),
    "status": Command("status:status", "Show the running mesh on one screen."),
    "proxies": Command("proxies:proxies", "Show what each proxy holds, acknowledged and refused."),
    "config": Command("config:config", "Show what a proxy was sent, and what it acknowledged."),
    "wait": Command("wait:wait", "Wait until every proxy holds an object."),
    "logs": Command("logs:logs", "Show what a pod prints."),
    "run": Command("run:run", "Run any program with an identity and a sidecar of its own."),
    "redirect": Command("redirect:redirect", "Bring a pod's TCP connections to its sidecar."),
    "ca": Command("ca:ca", "Show the mesh's certificate authority, or replace its root."),
    "version": Command("version:version", "Show versions, and the instance that runs."),
}


def load(name: str) -> Any:
    """Import a command and return it as typer runs it."""
    command = COMMANDS[name]
    module, _, function = command.place.partition(":")
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(name, help=None)(getattr(import_module(f"headgate.cli.{module}"), function))
    return typer.main.get_command(single)


class Commands(TyperGroup):
    """Shows all commands and loads one; turns errors of ours into a line and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the options before the command; without any arguments typer prints the help."""
        given = bool(args)
        try:
            return super().parse_args(ctx, args)
        except TyperException as error:
            raise (_refused(error, ctx) if given else error) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments name, and load it."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(str(name)), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Wrong usage, and an error that headgate raises on purpose, need no traceback."""
        try:
            return super().invoke(ctx)
        except TyperException as error:
            raise _refused(error, ctx) from None
        except HeadgateError as error:
            fail(str(error))
            raise typer.Exit(exit_code(error)) from error
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:  # the reader, `head` for example, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


def _refused(error: TyperException, ctx: Any) -> typer.Exit:
    """Print what is wrong with the arguments; return the exit."""
    asked = getattr(error, "ctx", None) or ctx
    fail(f"{usage_message(error.format_message())}\nSee `{asked.command_path} --help`.")
    return typer.Exit(error.exit_code)


app = typer.Typer(
    cls=Commands,
    help=SUMMARY,
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"headgate {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # its callback prints it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keep the command a group of commands, however many there are."""


def _named_only() -> None:
    """Stand for a command in the list; `load` finds the command itself."""


for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.summary)(_named_only)
