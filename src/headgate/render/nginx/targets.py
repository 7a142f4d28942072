"""The target of a request (path and query) after filters that change the path, as a variable of nginx."""

from headgate.model.requests import Path, PathEdit
from headgate.render.edits import new_path, replaced_start
from headgate.render.nginx.syntax import Variables, escaped, pattern, template

UNCHANGED = "$request_uri"
_QUERY = r"(?<headgate_query>\?.*)?\z"


def edited_target(variables: Variables, edit: PathEdit | None, matched: Path | None) -> str:
    """Return the variable with the new target; `matched` is the condition of the route on the path."""
    if edit is None:
        return UNCHANGED
    if edit.kind == "full":
        entry = (pattern(rf"\A[^?]*{_QUERY}"), template(f"{escaped(new_path(edit))}$headgate_query"))
    else:
        old, new = replaced_start(edit, matched)
        old_target = pattern(rf"\A{old}(?<headgate_rest>[^?]*){_QUERY}")
        entry = (old_target, template(f"{escaped(new)}$headgate_rest$headgate_query"))
    return variables.mapped("target", UNCHANGED, [entry])
