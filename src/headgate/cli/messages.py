"""Show the messages of `headgate up`: print them, or display them in the live table while it fills the terminal."""

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

MOST_RECENT = 100


class Messages(logging.StreamHandler[TextIO]):
    """Collects the messages and the log of `headgate up`.

    While the live table fills the terminal, nothing else may print.
    """

    def __init__(self, print_message: Callable[[str], None]) -> None:
        """Create the handler. `print_message` prints a message while the live table does not fill the terminal."""
        super().__init__(sys.stderr)
        self.heading: Sequence[str] = ()
        self.problems: Sequence[str] = ()
        self.pods: Sequence[str] = ()
        self.has_screen = False
        self._print = print_message
        self._recent: deque[str] = deque(maxlen=MOST_RECENT)

    @property
    def recent(self) -> Sequence[str]:
        """The last messages since the live table started to fill the terminal, oldest first, each with its time."""
        return tuple(self._recent)

    def show(self, text: str) -> None:
        """Show a message in the live table, or print the message."""
        if self.has_screen:
            self._recent.append(f"{time.strftime('%H:%M:%S')} {text}")
        else:
            self._print(text)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a log record in the live table, or print the record on stderr."""
        if self.has_screen:
            self.show(self.format(record))
        else:
            super().emit(record)

    @contextmanager
    def on_screen(self) -> Iterator[None]:
        """Collect messages for the live table while the `with` block runs, then print them."""
        self.has_screen = True
        try:
            yield
        finally:
            self.has_screen = False
            for text in self._recent:
                self._print(text)
            self._recent.clear()
