"""Error texts of failed HTTP requests: the reason that the operating system, TLS or the HTTP client reports."""

import os
from typing import Any

from aiohttp import ClientPayloadError

_REFUSED = "Connect call failed"


def describe(error: Exception) -> str:
    """Return the reason of an OSError or an aiohttp.ClientError in a few words, without the client's prefix."""
    cause: Any = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(error, ClientPayloadError):
        return "the connection ended before the whole answer"
    text = str(getattr(cause, "strerror", None) or cause)
    if text.startswith(_REFUSED) and cause.errno:  # asyncio has replaced the operating system's text
        return os.strerror(cause.errno)
    return text or "no answer in time"
