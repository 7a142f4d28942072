"""Modes of mutual TLS, in which a workload accepts and its clients open connections."""

import enum


class TlsMode(enum.Enum):
    """A mode of mutual TLS: it says which connections a workload accepts, and which connections its clients open.

    An mTLS migration moves a workload through the modes in this order or in reverse, one mode at a time. A step is safe
    as soon as every proxy has acknowledged the current mode.
    """

    PLAIN = "plain"  # The workload accepts plaintext only; clients send plaintext.
    READY = "ready"  # The workload accepts mutual TLS and plaintext; clients send plaintext.
    PERMISSIVE = "permissive"  # The workload accepts mutual TLS and plaintext; clients with an identity use mutual TLS.
    STRICT = "strict"  # The workload accepts mutual TLS only.

    @property
    def accepts_tls(self) -> bool:
        """Return whether the workload's proxy accepts mutual TLS."""
        return self is not TlsMode.PLAIN

    @property
    def accepts_plaintext(self) -> bool:
        """Return whether the workload's proxy accepts plaintext."""
        return self is not TlsMode.STRICT

    @property
    def clients_use_tls(self) -> bool:
        """Return whether clients that have an identity call the workload with mutual TLS."""
        return self is TlsMode.PERMISSIVE or self is TlsMode.STRICT

    def step_toward(self, target: "TlsMode") -> "TlsMode":
        """Return the next mode on the way to a target, or the target itself when it is reached."""
        order = list(TlsMode)
        here, there = order.index(self), order.index(target)
        return order[here + (there > here) - (there < here)]
