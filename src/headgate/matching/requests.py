"""Build an example request from the texts of its parts."""

from headgate.matching.conditions import AUTHORITY, CERTIFICATE, METHOD, METHODS, PATH, Conjunction, Dimension, Setting
from headgate.matching.solver import Values
from headgate.model.evaluate import RequestParts
from headgate.model.requests import Request
from headgate.model.sanitizing import Downstream, sanitize

_UPGRADE = {"connection": "upgrade", "upgrade": "websocket"}


def request_of(values: Values, setting: Setting) -> Request:
    """Return a request with the given texts; all other parts are usual ones."""
    texts = {dimension: text for dimension, text in values.items() if text is not None}
    path = texts.pop(PATH, None) or "/"
    method = texts.pop(METHOD, METHODS[0])
    pairs = "&".join(f"{dimension.name}={text}" for dimension, text in texts.items() if dimension.part == "query")
    headers = {dimension.name: text for dimension, text in texts.items() if dimension.part == "header"}
    authority = headers.pop(AUTHORITY, setting.authorities[0])
    headers.pop(CERTIFICATE, None)  # the proxy of the workload sets it
    if headers.get("x-forwarded-proto") == setting.domain(Dimension("header", "x-forwarded-proto")).usual[0]:
        del headers["x-forwarded-proto"]  # the proxy sets it
    if headers.keys() & _UPGRADE.keys():
        headers = {**_UPGRADE, **headers}  # proxies remove one without the other
    return Request(
        method=method,
        target=f"{path}?{pairs}" if pairs else path,
        authority=authority,
        headers=tuple(headers.items()),
    )


def parts_of(request: Request, setting: Setting) -> RequestParts | None:
    """Return a request as routes see it; None if the proxy refuses it."""
    seen = sanitize(request, Downstream(edge=setting.edge, secure=setting.secure))
    return None if seen.status else RequestParts(seen.request)


def fits(match: Conjunction, parts: RequestParts) -> bool:
    """Return whether a request meets all conditions."""
    for literal in match:
        text = _text(literal.dimension, parts)
        if (text is not None and literal.test.fits(text)) is not literal.holds:
            return False
    return True


def _text(dimension: Dimension, parts: RequestParts) -> str | None:
    if dimension == PATH:
        return parts.path
    if dimension == METHOD:
        return parts.request.method
    return (parts.headers if dimension.part == "header" else parts.query).get(dimension.name)
