"""The command line flags of Envoy. A sidecar's container imports this module at its start."""

from typing import NamedTuple


class EnvoyFlags(NamedTuple):
    """Command line flags of Envoy, with defaults for a laptop. Envoy inherits the file descriptors `pass_fds`."""

    log_level: str = "warning"
    concurrency: int = 1
    drain_s: int = 5
    pass_fds: tuple[int, ...] = ()

    def arguments(self) -> list[str]:
        """Return the arguments after `-c BOOTSTRAP`."""
        return [
            "--disable-hot-restart",  # with hot restart, the Envoys of a machine would conflict
            *("--concurrency", str(self.concurrency)),
            *("--drain-time-s", str(self.drain_s)),
            *("--drain-strategy", "immediate"),
            *("-l", self.log_level),
        ]
