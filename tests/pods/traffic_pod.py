"""The program of pods that serve and send the requests of a test, and the test's connection to such a pod.

In a pod: an HTTP server on the port of the variable PORT (8080), the servers of the variable SERVERS, and a control server. The image needs only this
file, `tests/e2e`, `tests/protocols.py`, `tests/wire.py`, and the packages that headgate needs.
"""

import json
import os
import socket
import socketserver
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.e2e.gateway_api.servers import PROTOCOLS, call_repeatedly
from tests.wire import DEADLINE_S, Address, Answer, Backend, Network, Received, Request, ask_once

PORT, CONTROL_PORT = 8080, 9100
ANY_ADDRESS = "0.0.0.0"


class ControlledPod:
    """A connection to the control server of a pod. A command is one line of JSON, and its answer too."""

    def __init__(self, host: str) -> None:
        self.address = Address(host, PORT)
        self._connection = socket.create_connection((host, CONTROL_PORT), timeout=3 * DEADLINE_S)
        self._lines = self._connection.makefile("rw")

    def call(self, **command: Any) -> Any:
        """Send a command; return the answer."""
        self._lines.write(f"{json.dumps(command)}\n")
        self._lines.flush()
        return json.loads(self._lines.readline())

    def ask(self, request: Request) -> Answer:
        """Let the pod send a request; return the answer that the pod received."""
        return Answer(*self.call(ask=request))

    def send(self, count: int, request: Request) -> Counter[str]:
        """Let the pod send a request `count` times, each on a connection of its own; return the answers by backend."""
        return Counter(self.call(ask=request, times=count))

    def call_grpc(self, address: Address, count: int) -> Counter[str]:
        """Let the pod send `count` calls over gRPC on one connection; return the answers by server."""
        return Counter(self.call(call=address, times=count))

    def close(self) -> None:
        """Close the connection."""
        self._lines.close()
        self._connection.close()


class PodBackend:
    """The HTTP server of a pod, with the attributes of `tests.wire.Backend`."""

    def __init__(self, pod: ControlledPod) -> None:
        self.address = pod.address
        self._pod = pod

    def reset(self) -> None:
        """Reset the count of requests and all settings."""
        self._pod.call(set={"requests": 0, "headers": {}, "hangs": False, "faults": []})

    @property
    def requests(self) -> int:
        return int(self._pod.call()["requests"])

    @property
    def last(self) -> Received:
        return Received(*self._pod.call()["last"])

    @property
    def headers(self) -> Mapping[str, str]:
        return dict(self._pod.call()["headers"])

    @headers.setter
    def headers(self, value: Mapping[str, str]) -> None:
        self._pod.call(set={"headers": dict(value)})

    @property
    def hangs(self) -> bool:
        return bool(self._pod.call()["hangs"])

    @hangs.setter
    def hangs(self, value: bool) -> None:
        self._pod.call(set={"hangs": value})

    @property
    def faults(self) -> list[str]:
        return list(self._pod.call()["faults"])

    @faults.setter
    def faults(self, value: list[str]) -> None:
        self._pod.call(set={"faults": value})


def main() -> None:
    """Serve until the pod ends."""
    network = Network()
    backend = Backend(network, os.environ["NAME"], ANY_ADDRESS, int(os.environ.get("PORT", PORT)))
    for name, (protocol, port) in json.loads(os.environ.get("SERVERS", "{}")).items():
        PROTOCOLS[protocol].start(network, name, Address(ANY_ADDRESS, port))

    def answer(command: Mapping[str, Any]) -> Any:
        if "ask" in command:
            address, *rest = command["ask"]
            request = Request(Address(*address), *rest)
            if "times" in command:
                return Counter(network.run(ask_once(request)).answered_by for _ in range(command["times"]))
            return network.run(ask_once(request))
        if "call" in command:
            return call_repeatedly(Address(*command["call"]), command["times"])
        for name, value in command.get("set", {}).items():
            setattr(backend, name, value)
        return {name: getattr(backend, name) for name in ("requests", "last", "headers", "hangs", "faults")}

    class Control(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                self.wfile.write(f"{json.dumps(answer(json.loads(line)))}\n".encode())

    with socketserver.ThreadingTCPServer((ANY_ADDRESS, CONTROL_PORT), Control) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
