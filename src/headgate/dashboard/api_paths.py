"""The API paths that the page may request. They leave out what returns foreign content, secrets, or a session in a container."""

from collections.abc import Sequence
from urllib.parse import quote, unquote

_PREFIX_PARTS = {"api": 2, "apis": 3}  # api/VERSION, apis/GROUP/VERSION
_RESOURCES = frozenset({"secrets", "proxy", "watch"})  # `proxy` and `watch` are prefixes of old paths
_SUBRESOURCES = frozenset({"proxy", "exec", "attach", "portforward", "token"})


def api_target(raw_path: str, query: str) -> str | None:
    """Return the target of a request to the API server for the path and query of a page's request; None if it may not pass.

    The proxies of pods and Services would answer with scripts of the page's own origin, and the page needs no Secret.
    """
    parts = [unquote(part) for part in raw_path.removeprefix("/").split("/")]
    if any(part in ("", ".", "..") or "/" in part for part in parts) or not _is_open(parts):
        return None
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return f"{path}?{query}" if query else path


def _is_open(parts: Sequence[str]) -> bool:
    prefix = _PREFIX_PARTS.get(parts[0])
    if prefix is None:
        return False
    below = parts[prefix:]
    resource, *names = below[2:] if below[:1] == ["namespaces"] and len(below) > 2 else below or [""]
    return resource not in _RESOURCES and (len(names) < 2 or names[1] not in _SUBRESOURCES)
