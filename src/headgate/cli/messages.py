"""What the live table shows beside the splits: mistakes that hold, and what happened of late."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

MOST_NEWS = 100


class Messages:
    """Messages of a running `headgate up`. While the table has the screen, nothing else may write there."""

    def __init__(self, elsewhere: Callable[[str], None]) -> None:
        """`elsewhere` prints a message when the table does not have the screen."""
        self.heading: Sequence[str] = ()
        self.problems: Sequence[str] = ()
        self.pods: Sequence[str] = ()
        self.is_shown = False
        self._elsewhere = elsewhere
        self._news: deque[str] = deque(maxlen=MOST_NEWS)

    @property
    def news(self) -> Sequence[str]:
        """What happened since the table has the screen, oldest first, each with its time."""
        return tuple(self._news)

    def say(self, text: str) -> None:
        """Show something that happened."""
        if self.is_shown:
            self._news.append(f"{time.strftime('%H:%M:%S')} {text}")
        else:
            self._elsewhere(text)

    @contextmanager
    def on_screen(self) -> Iterator[None]:
        """Collect messages, those of the log too, for the table while the body runs; print them afterwards."""
        handlers = [(handler, _Forward(self.say)) for handler in logging.getLogger().handlers]
        self.is_shown = True
        for old, new in handlers:
            for found in old.filters:
                new.addFilter(found)
            logging.getLogger().removeHandler(old)
            logging.getLogger().addHandler(new)
        try:
            yield
        finally:
            for old, new in handlers:
                logging.getLogger().removeHandler(new)
                logging.getLogger().addHandler(old)
            self.is_shown = False
            for text in self._news:
                self._elsewhere(text)
            self._news.clear()


class _Forward(logging.Handler):
    """Hands the text of log messages on."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Hand on one message."""
        self._say(self.format(record))
