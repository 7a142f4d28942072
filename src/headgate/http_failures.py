"""Words for a failed HTTP request: what the operating system, TLS or the HTTP client says, without the client's own frame."""

import os
from typing import Any

_REFUSED = "Connect call failed"


def describe(error: Exception) -> str:
    """Return the reason of an OSError or an aiohttp.ClientError in a few words."""
    cause: Any = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    text = str(getattr(cause, "strerror", None) or cause)
    if text.startswith(_REFUSED) and cause.errno:  # asyncio puts the address in place of the system's words
        return os.strerror(cause.errno)
    return text or "no answer in time"
