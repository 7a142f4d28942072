"""The command line of `kubectl traffic`, with the error messages and exit codes of `headgate`."""

import signal
import sys
from importlib.metadata import version as version_of

import typer

from headgate.cli.command_group import CommandGroup
from headgate.cli.output import WrongUsage, exit_code, fail
from headgate.cli.traffic import commands
from headgate.cli.traffic.audit import audit
from headgate.cli.traffic.options import HELP, split_options
from headgate.cli.traffic.tap import tap

NAME = "kubectl traffic"
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


app = typer.Typer(
    cls=CommandGroup,
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


def run() -> None:
    """Run the command line and exit with the code of the command."""
    for number in _SIGNALS:  # SystemExit, unlike the default action of a signal, also stops `kubectl proxy`
        signal.signal(number, _end)
    try:
        kubectl, arguments = split_options(sys.argv[1:])
    except WrongUsage as error:
        fail(str(error))
        raise SystemExit(exit_code(error)) from error
    app(arguments, prog_name=NAME, obj=kubectl)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
