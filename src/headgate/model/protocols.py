"""What is spoken on a port."""

import enum


class Protocol(enum.Enum):
    """What is spoken on a port (003, D16): it decides what a proxy may look at, and how it calls the backend."""

    HTTP = "http"  # HTTP/1.1 to the backend; clients may speak HTTP/2
    HTTP2 = "http2"  # HTTP/2 to the backend, gRPC too
    HTTP_ANY = "http-any"  # to the backend what the client speaks
    TCP = "tcp"
    TCP_SERVER_FIRST = "tcp-server-first"
    TLS = "tls"  # opaque, passed through

    @property
    def is_http(self) -> bool:
        """Whether requests are seen one by one; else connections are."""
        return self in {Protocol.HTTP, Protocol.HTTP2, Protocol.HTTP_ANY}
