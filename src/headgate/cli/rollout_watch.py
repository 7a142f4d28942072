"""`headgate rollout watch`: show a rollout until it ends, with a plot of the evidence on a terminal."""

import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli.output import print_whole, stdout
from headgate.cli.rollout_status import (
    PROMOTE_STYLE,
    ROLL_BACK_STYLE,
    DecisionProgress,
    RolloutStatus,
    picture,
    progress_of,
)

REFRESHES_PER_S = 2
_LEVELS = "▁▂▃▄▅▆▇█"  # the highest level is the decision itself
_NEXT_STEP = "│"
_BESIDE_PLOT = 18  # columns of the name and the percentage


class Look(NamedTuple):
    """The evidence at one time, and the number of the step."""

    step: int
    progress: DecisionProgress


class History:
    """The evidence of a rollout over time: a look for each change."""

    def __init__(self) -> None:
        self._looks: list[Look] = []

    def add(self, status: RolloutStatus) -> None:
        """Add a look if the evidence or the step has changed. A rollout that has ended has the evidence of its last step."""
        progress = progress_of(status)
        step = self._looks[-1].step if self._looks and status.is_over else status.step
        if progress and self._looks[-1:] != [(step, progress)]:
            self._looks.append(Look(step, progress))

    def plot(self, width: int) -> Table:
        """Return two lines, at most `width` wide: a column for each look, the last one at the right, and `│` between steps."""
        table = Table(box=None, pad_edge=False, show_header=False)
        shown = self._looks[-max(width - _BESIDE_PLOT, 1) :]
        for name, number, style in (("roll back", 0, ROLL_BACK_STYLE), ("promote", 1, PROMOTE_STYLE)):
            columns = "".join(
                (_NEXT_STEP if before and before.step != look.step else "") + _level(look.progress[number])
                for before, look in zip([None, *shown], shown, strict=False)
            )
            last = f"{shown[-1].progress[number]:4.0%}" if shown else ""
            table.add_row(name, Text(columns[-max(width - _BESIDE_PLOT, 1) :], style=style), last)
        return table


def _level(part: float) -> str:
    return _LEVELS[int(part * (len(_LEVELS) - 1))]


async def show(updates: AsyncIterator[RolloutStatus], console: Console | None = None) -> RolloutStatus:
    """Show each update until the rollout ends, and return the last one.

    On a terminal the picture fills the screen, else each change to the message is a line.
    """
    terminal = console or stdout(folds=True)
    if terminal.is_terminal and not terminal.is_dumb_terminal:
        return await _on_screen(updates, terminal)
    return await _as_lines(updates, stdout())


async def _as_lines(updates: AsyncIterator[RolloutStatus], console: Console) -> RolloutStatus:
    shown = ""
    async for status in updates:
        text = f"{status.state or 'Pending'}: {status.message}"
        if text != shown:
            console.print(f"{time.strftime('%H:%M:%S')} {text}", soft_wrap=True)
        shown = text
        if status.is_over:
            return status
    raise AssertionError("the updates of an object never end")


async def _on_screen(updates: AsyncIterator[RolloutStatus], terminal: Console) -> RolloutStatus:
    history, latest = History(), list[RolloutStatus]()

    def current() -> Group:
        return picture(latest[-1], "", history.plot(terminal.width)) if latest else Group("waiting for the API")

    try:
        with Live(console=terminal, get_renderable=current, screen=True, refresh_per_second=REFRESHES_PER_S):
            async for status in updates:
                history.add(status)
                latest[:] = [status]
                if status.is_over:
                    return status
    finally:
        print_whole(terminal, current())  # leaving the full screen has erased the picture
    raise AssertionError("the updates of an object never end")
