"""`headgate down`: stop the processes that a killed headgate left running."""

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path

import typer

from headgate import control_groups
from headgate.cli.arguments import State
from headgate.cli.connection import default_state
from headgate.cli.output import EXIT_FAILURE, stdout
from headgate.errors import HeadgateError
from headgate.standalone.gateway import GATEWAY
from headgate.standalone.network.machine_network import remove_unused as remove_unused_networks
from headgate.standalone.pods.leftovers import Leftover, containers, end, proxies, remaining_group
from headgate.standalone.runtime_directory import remove_unused
from headgate.standalone.runtime_info import read_runtime_info
from headgate.standalone.state_directory import lock


def down(state: State = None) -> None:
    """Stop the processes that a killed headgate left running: containers of pods, and Envoys.

    The objects stay for the next `headgate up`. Without `down`, the next `headgate up` adopts the processes. A running
    headgate is not stopped: press Ctrl-C in its terminal, which also stops the processes that it started.
    """
    directory = (state or default_state()).absolute()
    if not directory.is_dir():
        raise HeadgateError(
            f"the state directory {directory} does not exist; set --state to the directory of `headgate up`"
        )
    with ExitStack() as stack:
        try:
            stack.enter_context(lock(directory))
        except HeadgateError:
            raise _still_running_error(directory) from None
        results, groups = asyncio.run(_end(directory))
    removed = list(map(str, remove_unused(os.environ)))
    removed += [f"the network {bridge}" for bridge in remove_unused_networks()]
    console = stdout()
    for leftover, stopped in results:
        verb = "stopped" if stopped else "could not stop"
        text = f"{verb} {leftover.name} (process {leftover.process.identity.pid})"
        console.print(text, style=None if stopped else "bold red", soft_wrap=True)
    for group in groups:
        console.print(remaining_group(group), style="bold red", soft_wrap=True)
    for name in removed:
        console.print(f"removed {name}", soft_wrap=True)
    if not results and not removed and not groups:
        console.print(
            f"found no processes or sockets of a killed headgate with the state directory {directory}", soft_wrap=True
        )
    if groups or not all(stopped for _, stopped in results):
        raise typer.Exit(EXIT_FAILURE)


def _still_running_error(state: Path) -> HeadgateError:
    current = read_runtime_info(state)
    process = f" (process {current.pid})" if current else ""
    return HeadgateError(
        f"a headgate{process} runs with the state directory {state}, but `headgate down` stops only the processes of a "
        "killed headgate; press Ctrl-C in the terminal of `headgate up`, which also stops the processes that it started"
    )


async def _end(state: Path) -> tuple[list[tuple[Leftover, bool]], list[Path]]:
    """Stop the processes; return each with whether it stopped, and the control groups that remain.

    The containers stop first, because their Envoys must forward requests until then.
    """
    results = await end(containers(state))
    groups = control_groups.remove(*(state / "pods").glob("*_*_*"))
    return results + await end(proxies(state, GATEWAY)), groups
