"""Which process a pod stands for that `headgate run` started, as its annotations name it."""

from headgate.resources.meta import Metadata, Value

PROCESS = "headgate.dev/process"
"""Annotation of a pod: `external` when its process is not the runtime's to start."""
EXTERNAL = "external"
PROCESS_ID = "headgate.dev/process-id"
"""Annotation of such a pod: the process whose end is the pod's, `PID-START-BOOT` (`Identity`)."""


class Identity(Value, frozen=True, kw_only=True):
    """Which process: a pid is used again, but not with the same start (clock ticks since boot) in the same boot."""

    pid: int
    started: int
    boot: str


def write_identity(identity: Identity) -> str:
    """Return the annotation's text for a process."""
    return f"{identity.pid}-{identity.started}-{identity.boot}"


def read_identity(metadata: Metadata) -> Identity | None:
    """Return the process that a pod names; None when it names none."""
    pid, _, rest = metadata.annotations.get(PROCESS_ID, "").partition("-")
    started, _, boot = rest.partition("-")
    if not (pid.isdecimal() and started.isdecimal() and boot and int(pid)):
        return None
    return Identity(pid=int(pid), started=int(started), boot=boot)
