"""A database of votes in a file: PASSWORD WORDS first; then VOTE VOTER CHOICE, or COUNT, whose answer is JSON."""

import json
import sqlite3
from pathlib import Path

from lines import serve

PASSWORD = Path("/run/secrets/db/password").read_text()
FILE = "/var/lib/db/votes.sqlite"


def respond(line: str, authenticated: bool) -> tuple[str, bool]:
    """Carry out a command. Each voter has one vote: the last."""
    command, _, rest = line.partition(" ")
    if command == "PASSWORD":
        return ("OK", True) if rest == PASSWORD else ("wrong password", False)
    if not authenticated:
        return "no password", False
    with sqlite3.connect(FILE, timeout=60) as votes:
        if command == "VOTE":
            votes.execute("INSERT OR REPLACE INTO votes VALUES (?, ?)", rest.split(" "))
            return "OK", True
        rows = votes.execute("SELECT choice, count(*) FROM votes GROUP BY choice")
        return json.dumps(dict(rows.fetchall())), True


if __name__ == "__main__":
    with sqlite3.connect(FILE) as created:
        created.execute("CREATE TABLE IF NOT EXISTS votes (voter TEXT PRIMARY KEY, choice TEXT)")
    serve(5432, respond)
