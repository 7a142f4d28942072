"""`headgate down`: end what a killed headgate left running."""

import asyncio
import os
from pathlib import Path

import typer

from headgate.cli.arguments import State
from headgate.cli.connection import default_state
from headgate.cli.output import EXIT_NO, stdout
from headgate.errors import HeadgateError
from headgate.standalone.gateway import GATEWAY
from headgate.standalone.pods.leftovers import Leftover, containers, end, proxies
from headgate.standalone.runtime_directory import remove_unused
from headgate.standalone.state_directory import lock


def down(state: State = None) -> None:
    """End what a killed headgate left running: the processes of pods, and their Envoys.

    The objects stay for the next `headgate up`, which would take the processes over instead. A headgate that runs is left
    alone: Ctrl-C ends it with all that it started.
    """
    directory = (state or default_state()).absolute()
    if not directory.is_dir():
        raise HeadgateError(f"there is no state directory {directory}; name one with --state")
    with lock(directory):
        ended = asyncio.run(_end(directory))
    removed = remove_unused(os.environ)
    console = stdout()
    for item, gone in ended:
        verb = "ended" if gone else "could not end"
        text = f"{verb} {item.name} (process {item.process.identity.pid})"
        console.print(text, style=None if gone else "bold red", soft_wrap=True)
    for path in removed:
        console.print(f"removed {path}", soft_wrap=True)
    if not ended and not removed:
        console.print(f"nothing is left of a headgate with the state directory {directory}", soft_wrap=True)
    if not all(gone for _, gone in ended):
        raise typer.Exit(EXIT_NO)


async def _end(state: Path) -> list[tuple[Leftover, bool]]:
    """End containers first: until then their Envoys pass on what they still send."""
    ended = await end(containers(state))
    return ended + await end(proxies(state, GATEWAY))
