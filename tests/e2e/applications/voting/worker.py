"""Move votes from the queue to the database, which may restart meanwhile."""

import os
import signal
import sys
import time
from pathlib import Path

from lines import LineClient

ALIVE = Path("/run/worker/alive")


def store(vote: str) -> None:
    """Write a vote to the database over a connection of its own, until it has arrived."""
    while True:
        try:
            db = LineClient("db-0.db", 5432)
            db.send(f"PASSWORD {os.environ['DB_PASSWORD']}")
            db.send(f"VOTE {vote}")
        except OSError:
            time.sleep(0.5)
        else:
            return


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    votes = LineClient("redis", 6379)
    ALIVE.touch()
    while True:
        if vote := votes.send("POP"):
            store(vote)
