"""What the live table shows beside the splits: mistakes that hold, and what happened of late."""

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

MOST_RECENT = 100


class Messages(logging.StreamHandler[TextIO]):
    """Messages of a running `headgate up`, with those of its log. While the table has the screen, nothing else may write there."""

    def __init__(self, print_message: Callable[[str], None]) -> None:
        """`elsewhere` prints a message when the table does not have the screen."""
        super().__init__(sys.stderr)
        self.heading: Sequence[str] = ()
        self.problems: Sequence[str] = ()
        self.pods: Sequence[str] = ()
        self.has_screen = False
        self._print = print_message
        self._news: deque[str] = deque(maxlen=MOST_RECENT)

    @property
    def recent(self) -> Sequence[str]:
        """What happened since the table has the screen, oldest first, each with its time."""
        return tuple(self._news)

    def show(self, text: str) -> None:
        """Show something that happened."""
        if self.has_screen:
            self._news.append(f"{time.strftime('%H:%M:%S')} {text}")
        else:
            self._print(text)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a message of the log."""
        if self.has_screen:
            self.show(self.format(record))
        else:
            super().emit(record)

    @contextmanager
    def on_screen(self) -> Iterator[None]:
        """Collect messages for the table while the body runs; print them afterwards."""
        self.has_screen = True
        try:
            yield
        finally:
            self.has_screen = False
            for text in self._news:
                self._print(text)
            self._news.clear()
