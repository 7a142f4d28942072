"""The directory with the files of a rendered configuration, kept current for a running proxy."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from headgate.backoff import Backoff
from headgate.cli.output import note
from headgate.compiler.snapshot import Snapshot
from headgate.formatting import pluralize
from headgate.latest import Latest
from headgate.proxy_programs.files import ProxyProgram, activate
from headgate.proxy_programs.programs import output_of_failure
from headgate.render.output import Rendered

PAUSE_S = 0.2
"""Seconds between two reloads, each of which starts new workers; changes in between are applied together."""


class ReloadCommand(NamedTuple):
    """A program whose reload is a command of the user."""

    program: ProxyProgram
    command: Sequence[str]

    def check(self, directory: Path, main: Path) -> str:
        """Check as the program does."""
        return self.program.check(directory, main)

    def reload(self, _directory: Path) -> str:
        """Run the command."""
        return output_of_failure(self.command)


async def keep_current(
    snapshots: Latest[Snapshot | None], render: Callable[[Snapshot], Rendered], directory: Path, program: ProxyProgram
) -> None:
    """Write the files of each snapshot and reload the proxy, until canceled. A rejected configuration changes nothing.

    A failure is printed once, and retried until it has ended or a newer configuration replaces it.
    """
    last: Rendered | None = None
    failure, backoff = "", Backoff()
    while True:
        changed, snapshot, pause = snapshots.next_change(), snapshots.get(), None
        rendered = render(snapshot) if snapshot else None
        is_new = rendered is not None and (last is None or rendered.files != last.files)
        if rendered and is_new:
            _print_omissions(rendered, last)
            last = rendered
            backoff.reset()
        if rendered and (is_new or failure):
            before, failure = failure, await asyncio.to_thread(activate, rendered, directory, program)
            if not failure or _without_numbers(failure) != _without_numbers(before):
                note(failure or activation_note(directory, len(rendered.omissions)))
            pause = backoff.next_pause() if failure else None
            await asyncio.sleep(PAUSE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await changed.wait()


def _print_omissions(rendered: Rendered, last: Rendered | None) -> None:
    """Print the omissions of a configuration if they differ from those of the last one."""
    if last is None or rendered.omissions != last.omissions:
        for omission in rendered.omissions:
            note(str(omission))


def _without_numbers(failure: str) -> str:
    """Return a message without process IDs and times, which differ between attempts."""
    return re.sub(r"\d+", "", failure)


def activation_note(directory: Path, omissions: int) -> str:
    """Return a message about a configuration that a proxy loads; `omissions` is their number."""
    return f"{directory} has a new configuration with {pluralize(omissions, 'omission')}; the proxy loads it"
