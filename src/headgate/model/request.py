"""A request as its client sends it."""

from typing import Literal

from headgate.resources.meta import Value

Headers = tuple[tuple[str, str], ...]


class Request(Value, frozen=True, kw_only=True):
    """A request as a client sends it: `target` is the path with its query, names of headers are in any case.

    `version` is the version of HTTP on the connection, `server_name` the name that a TLS connection was opened for (SNI);
    none is the host of the request.
    """

    authority: str = ""
    server_name: str | None = None
    method: str = "GET"
    target: str = "/"
    headers: Headers = ()
    version: Literal["1.0", "1.1", "2"] = "1.1"
