"""The command line of `kubectl traffic`, with the error messages and exit codes of `headgate`."""

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version as version_of

import typer

from headgate.cli.command_group import CommandGroup
from headgate.cli.help_page import UNREACHABLE, HelpCommand, epilog
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
    epilog=f"{HELP}\n\n{epilog((), UNREACHABLE)}",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_COMMANDS: Mapping[Callable[..., None], Sequence[str]] = {
    commands.top: ("kubectl traffic top deployments", "kubectl traffic top pods -n shop --sort-by success -w"),
    commands.edges: ("kubectl traffic edges deployment/website", "kubectl traffic edges pod/web --by namespace"),
    commands.topology: ("kubectl traffic topology", "kubectl traffic topology services -o svg > services.svg"),
    tap: ("kubectl traffic tap deployment/website", "kubectl traffic tap pod/web --headers"),
    audit: ("kubectl traffic audit", "kubectl traffic audit -A -o json"),
}
for _command, _examples in _COMMANDS.items():
    app.command(cls=HelpCommand, epilog=f"{HELP}\n\n{epilog(_examples, UNREACHABLE)}")(_command)


@app.command(cls=HelpCommand, epilog=epilog(("kubectl traffic version",), {}))
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
