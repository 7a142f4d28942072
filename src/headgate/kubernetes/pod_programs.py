"""Run a program in a container of a pod through the API server, as `kubectl exec` does.

The program's streams are channels of a websocket with the protocol v4.channel.k8s.io: the first byte of a
message is its channel.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

import msgspec

from headgate.errors import HeadgateError, Unavailable
from headgate.kubernetes.client import Client, path_of
from headgate.resources.registry import POD

PROTOCOLS = ("v4.channel.k8s.io",)
STDIN, STDOUT, STDERR, RESULT = range(4)
CHUNK = 1 << 15
LONGEST_ERROR = 2000  # bytes


class PodContainer(NamedTuple):
    """A container of a pod."""

    namespace: str
    pod: str
    name: str


class ProgramFailed(HeadgateError):
    """The program has ended with an exit code other than 0, or could not be started (`code` is 0)."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


async def run_program(
    client: Client, container: PodContainer, command: Sequence[str], *, stdin: bytes
) -> AsyncGenerator[bytes]:
    """Run a program and yield parts of its standard output; close the generator with `aclosing`.

    The standard input stays open after `stdin` until the generator is closed. Raises ProgramFailed with the program's
    standard error, NotFound when the pod does not exist, and Unavailable when the connection ends before the program.
    """
    path = path_of(POD, container.namespace, container.pod, "exec")
    query = {"container": container.name, "command": command, "stdin": "true", "stdout": "true", "stderr": "true"}
    errors = b""
    async with client.websocket(path, PROTOCOLS, query) as socket:
        for begin in range(0, len(stdin), CHUNK):
            await socket.send_bytes(bytes([STDIN]) + stdin[begin : begin + CHUNK])
        async for message in socket:
            channel, content = message.data[0], message.data[1:]
            if channel == STDOUT and content:
                yield content
            elif channel == STDERR:
                errors = (errors + content)[-LONGEST_ERROR:]
            elif channel == RESULT:
                _check(content, errors)
                return
    raise Unavailable(f"the connection to the program in pod {container.namespace}/{container.pod} has ended")


def _check(result: bytes, errors: bytes) -> None:
    """Raise ProgramFailed unless `result`, a Status object, says that the program has succeeded."""
    status = msgspec.json.decode(result, type=dict[str, Any])
    if status.get("status") == "Success":
        return
    causes = (status.get("details") or {}).get("causes") or ()
    codes = [int(cause["message"]) for cause in causes if cause.get("reason") == "ExitCode"]
    text = errors.decode(errors="replace").strip() or str(status.get("message", "it can't be started"))
    raise ProgramFailed(text, codes[0] if codes else 0)
