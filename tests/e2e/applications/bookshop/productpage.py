"""The page of a book: it calls the details and the reviews, for the user of the header `end-user`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from web import fetch, serve

TITLE = Path("/run/page/title")


def respond(_method: str, path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
    """Return the page with the version of its reviews."""
    if path == "/health":
        return 200, {}
    user = headers.get("end-user", "visitor")
    details = fetch("http://details:9080/details/0", end_user=user)
    reviews = fetch("http://reviews:9080/reviews/0", end_user=user)
    return 200, {"title": TITLE.read_text().strip(), "book": details["title"], **reviews}


if __name__ == "__main__":
    serve(9080, respond)
