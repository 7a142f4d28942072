"""The page on which users vote: POST /a or /b, with the name of the voter after `?`."""

import os
from collections.abc import Mapping
from typing import Any

from lines import LineClient
from web import serve

OPTIONS = {"/a": os.environ["OPTION_A"], "/b": os.environ["OPTION_B"]}


def respond(method: str, path: str, _headers: Mapping[str, str]) -> tuple[int, Any]:
    """Enqueue a vote, or return the options."""
    choice, _, voter = path.partition("?")
    if method == "GET":
        return 200, sorted(OPTIONS.values())
    if choice not in OPTIONS:
        return 404, {}
    LineClient("redis", 6379).send(f"PUSH {voter} {OPTIONS[choice]}")
    return 200, {"version": OPTIONS[choice]}


if __name__ == "__main__":
    serve(80, respond)
