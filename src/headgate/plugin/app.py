"""The command line of `kubectl traffic`, with error messages and exit codes like those of `headgate`."""

import os
import signal
import sys
from importlib.metadata import version as version_of
from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from headgate.errors import HeadgateError, Unavailable, usage_message
from headgate.formatting import printable
from headgate.plugin import commands
from headgate.plugin.audit import audit
from headgate.plugin.errors import WrongUsage
from headgate.plugin.options import HELP, split_options
from headgate.plugin.tap import tap

NAME = "kubectl traffic"
NO, USAGE, UNREACHABLE, INTERRUPTED = 1, 2, 3, 130
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Commands(TyperGroup):
    """The group of all commands: turns a HeadgateError into a message and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the options before the command. Without arguments typer prints the help."""
        given = bool(args)
        try:
            return super().parse_args(ctx, args)
        except TyperException as error:
            raise (_usage_exit(error, ctx) if given else error) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Wrong usage and a HeadgateError print a message without a traceback."""
        try:
            return super().invoke(ctx)
        except TyperException as error:
            raise _usage_exit(error, ctx) from None
        except HeadgateError as error:
            raise _failed(str(error), _exit_code(error)) from error
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # the reader of the pipe, for example `head`, has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


def _usage_exit(error: TyperException, ctx: Any) -> typer.Exit:
    context = getattr(error, "ctx", None) or ctx
    return _failed(f"{usage_message(error.format_message())}\nSee `{context.command_path} --help`.", error.exit_code)


app = typer.Typer(
    cls=Commands,
    help="Show the traffic between the workloads of a cluster: request rates, success and latency.",
    epilog=HELP + " Exit codes: 0 success; 1 error; 2 wrong usage; 3 the API can't be reached; 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


for _command in (commands.top, commands.edges, commands.topology, tap, audit):
    app.command()(_command)


@app.command()
def version() -> None:
    """Show the version of this plugin."""
    sys.stdout.write(f"{NAME} {version_of('headgate')}\n")


def _exit_code(error: HeadgateError) -> int:
    if isinstance(error, WrongUsage):
        return USAGE
    return UNREACHABLE if isinstance(error, Unavailable) else NO


def _failed(message: str, code: int) -> typer.Exit:
    sys.stderr.write(printable(f"error: {message}") + "\n")
    return typer.Exit(code)


def run() -> None:
    """Run the command line and exit with the code of the command."""
    for number in _SIGNALS:  # SystemExit, unlike the default action of a signal, also stops `kubectl proxy`
        signal.signal(number, _end)
    try:
        kubectl, arguments = split_options(sys.argv[1:])
    except WrongUsage as error:
        sys.stderr.write(printable(f"error: {error}") + "\n")
        raise SystemExit(USAGE) from error
    app(arguments, prog_name=NAME, obj=kubectl)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
