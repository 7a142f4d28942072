"""The target of a request (path and query) after filters that change the path, as a variable of nginx."""

import re

from headgate.model.requests import Path, PathEdit
from headgate.render.nginx.syntax import Variables, escaped, pattern, template

UNCHANGED = "$request_uri"
_QUERY = r"(?<headgate_query>\?.*)?\z"


def edited_target(variables: Variables, edit: PathEdit | None, matched: Path | None) -> str:
    """Return the variable with the new target; `matched` is the condition of the route on the path."""
    if edit is None:
        return UNCHANGED
    new = edit.value if edit.value.startswith("/") else f"/{edit.value}"
    if edit.kind == "full":
        entry = (pattern(rf"\A[^?]*{_QUERY}"), template(f"{escaped(new)}$headgate_query"))
        return variables.mapped("target", UNCHANGED, [entry])
    new = new.rstrip("/")
    old = matched.value.rstrip("/") if matched and matched.kind == "prefix" else ""
    slash, slashes = ("", "") if old and new else ("/", "/*")
    found = pattern(rf"\A(?:{re.escape(old)})?{slashes}(?<headgate_rest>[^?]*){_QUERY}")
    return variables.mapped(
        "target", UNCHANGED, [(found, template(f"{escaped(new)}{slash}$headgate_rest$headgate_query"))]
    )
