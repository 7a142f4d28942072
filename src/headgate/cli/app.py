"""The table of the `headgate` commands, and the application that runs them.

The module of a command is imported only when the command runs, so that every command starts fast.
"""

import inspect
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from headgate import __version__
from headgate.cli.command_group import CommandGroup

SUMMARY = "Split real traffic with Envoy proxies, as Kubernetes-style resources describe it, and show the result."
EPILOG = (
    "Exit codes: 0 success; 1 the check failed or found errors; 2 wrong usage; 3 headgate or its proxy can't be"
    " reached; 4 a check of `plan` is undecided; 124 timeout; 126 and 127 `run` can't start the program; 130 interrupted."
)


class Command(NamedTuple):
    """A command: its function, as `module:function` below `headgate.cli`, and its line in the list of commands.

    The list omits `hidden` commands, which only containers run.
    """

    function: str
    summary: str
    hidden: bool = False


COMMANDS: Mapping[str, Command] = {
    "up": Command("up:up", "Run a directory of manifests on this machine."),
    "down": Command("down:down", "Stop the processes that a killed headgate left running."),
    "check": Command("check:check", "Check manifests offline, or the running mesh."),
    "compile": Command("compile:compile_", "Compile manifests; print the mesh, findings or Envoy resources."),
    "render": Command("render:render", "Print the routing as a configuration of another proxy."),
    "explain": Command("explain:explain_", "Explain which route and which backends a request would take."),
    "plan": Command("plan:plan_", "Show what a change does to requests and access."),
    "history": Command("history:history", "List the changes of objects, their writers, and what they did."),
    "rollback": Command("rollback:rollback", "Restore the objects of an earlier revision."),
    "try": Command("try_command:try_", "Send requests; compare their distribution with the weights."),
    "generate": Command("generate:generate", "Write access rules that allow the recorded traffic."),
    "status": Command("status:status", "Summarize the running mesh on one screen."),
    "proxies": Command("proxies:proxies", "Show the resources that each proxy has acknowledged and rejected."),
    "config": Command("config:config", "Show the Envoy resources that a proxy was sent, and their state."),
    "wait": Command("wait:wait", "Wait until every proxy has acknowledged an object."),
    "rollout": Command("rollout:rollout", "Show, pause, promote or abort the rollout of a Canary."),
    "logs": Command("logs:logs", "Print the logs of a pod."),
    "run": Command("run:run", "Run a program with its own identity and sidecar."),
    "redirect": Command("redirect:redirect", "Redirect the TCP connections of a pod to its sidecar."),
    "install": Command("install:install", "Install headgate on a Kubernetes cluster, or upgrade it."),
    "uninstall": Command("install:uninstall", "Remove headgate from a Kubernetes cluster."),
    "inject": Command("inject:inject", "Add sidecars to manifests of workloads for a cluster."),
    "control-plane": Command("control_plane:control_plane", "Run the control plane on Kubernetes.", hidden=True),
    "ca": Command("ca:ca", "Show the certificate authority of the mesh, or rotate its root."),
    "version": Command("version:version", "Show versions and the addresses of the running headgate."),
}


def load(name: str) -> Any:
    """Import the module of a command and return the command that typer runs."""
    command = COMMANDS[name]
    module, _, function = command.function.partition(":")
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    run = getattr(import_module(f"headgate.cli.{module}"), function)
    single.command(name, help=_unwrapped(run))(run)
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
    rich_markup_mode="rich",
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
    app.command(_name, help=_command.summary, hidden=_command.hidden)(_unloaded)
