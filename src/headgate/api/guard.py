"""The outermost place of a request: whatever goes wrong, the client gets a Status."""

import logging
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from headgate.api import media
from headgate.api.status import ApiError

_log = logging.getLogger(__name__)
_BUG = ApiError(500, "headgate has a bug here; its log says more")


async def guarded(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Answer a request; every error becomes a Status."""
    try:
        return await answer(request)
    except ApiError as error:
        return media.answer(error.status(), code=error.code)
    except Exception:  # noqa: BLE001  a bug ends this answer, not the server
        _log.exception("no answer to %s %s", request.method, request.url.path)
        return media.answer(_BUG.status(), code=_BUG.code)
