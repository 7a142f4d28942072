"""The directory with the files of a rendered configuration, kept current for a running proxy."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from headgate.cli.output import note
from headgate.compiler.snapshot import Snapshot
from headgate.formatting import pluralize
from headgate.latest import Latest
from headgate.proxy_programs.files import ProxyProgram, output_of_failure, put_in_force
from headgate.render.output import Rendered

PAUSE_S = 0.2
"""Seconds between two reloads, each of which starts new workers; changes in between are put in force together."""


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
    """Write the files of each snapshot and reload the proxy, until canceled. A rejected configuration changes nothing."""
    last: Rendered | None = None
    async for snapshot in snapshots.changes():
        rendered = render(snapshot) if snapshot else None
        if rendered is None or (last and rendered.files == last.files):
            continue
        if last is None or rendered.omissions != last.omissions:
            for omission in rendered.omissions:
                note(str(omission))
        last = rendered
        note(
            await asyncio.to_thread(put_in_force, rendered, directory, program)
            or in_force(directory, len(rendered.omissions))
        )
        await asyncio.sleep(PAUSE_S)


def in_force(directory: Path, omissions: int) -> str:
    """Return a message about a configuration that a proxy loads; `omissions` is their number."""
    return f"{directory} has a new configuration with {pluralize(omissions, 'omission')}; the proxy loads it"
