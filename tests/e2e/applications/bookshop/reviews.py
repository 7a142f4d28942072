"""The reviews of a book. v1 has no stars; v2 and v3 call the ratings, and v3 colors the stars."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from web import fetch, serve

VERSION = os.environ["VERSION"]
COLORS = {"v2": "black", "v3": "red"}
READY = Path("/run/reviews/ready")


def respond(_method: str, _path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
    """Return the reviews with the version of the program."""
    reviews: dict[str, Any] = {"version": VERSION, "reviews": ["a pleasure", "worth its price"]}
    if VERSION in COLORS:
        user = headers.get("end-user", "visitor")
        reviews |= {"color": COLORS[VERSION], "ratings": fetch("http://ratings:9080/ratings/0", end_user=user)}
    return 200, reviews


if __name__ == "__main__":
    READY.touch()
    serve(9080, respond)
