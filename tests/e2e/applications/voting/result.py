"""The counts of the votes."""

import json
import os
from collections.abc import Mapping
from typing import Any

from lines import LineClient
from web import serve


def respond(_method: str, path: str, _headers: Mapping[str, str]) -> tuple[int, Any]:
    """Return the counts by choice."""
    if path == "/health":
        return 200, {}
    db = LineClient("db", 5432)
    db.send(f"PASSWORD {os.environ['DB_PASSWORD']}")
    return 200, json.loads(db.send("COUNT"))


if __name__ == "__main__":
    serve(80, respond)
