"""A continuous load from a pod of a real cluster. It goes on while the API server is down."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.pods.conftest import Cluster, until

CONNECTIONS = 4
PAUSE_S = 0.1
"""The time between an answer and the next request of a connection. Without it, a load would need all processor time of a machine."""
REQUEST_S = 50
"""The limit of a request: a busy machine may need the attempts of a proxy, each of which may take 5 s."""
SEND = f"""
import collections, functools, http.client, json, os, socket, sys, threading, time
host, pause, running, begun, result, *options = sys.argv[1:]
found = collections.Counter()
socket.getaddrinfo = functools.cache(socket.getaddrinfo)  # the test is not about the cluster's DNS
while True:
    try:
        socket.getaddrinfo(host, 8080, 0, socket.SOCK_STREAM)  # as http.client does
        break
    except OSError:
        time.sleep(0.1)

def send():
    connection = http.client.HTTPConnection(host, 8080, timeout={REQUEST_S})
    is_last = False
    while not is_last:
        is_last = not os.path.exists(running)
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            words = answer.read().decode().split()
            found[words[-2].rsplit("-", 2)[0] if answer.status == 200 else f"{{answer.status}} {{' '.join(words)}}"] += 1
        except (OSError, http.client.HTTPException) as error:
            found[repr(error)] += 1
            connection.close()
        if "reconnect" in options:
            connection.close()
        open(begun, "a").close()
        time.sleep(float(pause))

threads = [threading.Thread(target=send) for _ in range({CONNECTIONS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with open(result + ".part", "w") as file:
    json.dump(found, file)
os.rename(result + ".part", result)
"""
"""Sends requests until the file `running` is gone, and one more; then writes how many each Deployment answered, and the failures.

Creates the file `begun` after the first request. With the option `reconnect`, each request has its own connection."""
RUNNING, BEGUN, RESULT = "/tmp/running", "/tmp/begun", "/tmp/result"
START = f"""
rm -f {BEGUN} {RESULT}
touch {RUNNING}
nohup python3 -c "$0" "$@" > /dev/null 2>&1 &
until [ -e {BEGUN} ]; do sleep 0.1; done
"""
END = f"""
rm -f {RUNNING}
until [ -e {RESULT} ]; do sleep 0.1; done
cat {RESULT}
"""


@contextmanager
def load(
    cluster: Cluster,
    namespace: str,
    host: str,
    *,
    client: str = "client",
    reconnect: bool = False,
    pause: float = PAUSE_S,
) -> Iterator[dict[str, int]]:
    """Send requests from the Deployment `client` during the block, which begins after the first one. One more follows it.

    With `reconnect`, each request has its own connection. The yielded counts, by Deployment or by the text of a failure, are complete after the block.
    """

    def run(*command: str) -> str:
        return cluster.kubectl("-n", namespace, "exec", f"deployment/{client}", "-c", "app", "--", *command)

    counts: dict[str, int] = {}
    options = ["reconnect"] if reconnect else []
    run("sh", "-c", START, SEND, host, str(pause), RUNNING, BEGUN, RESULT, *options)
    try:
        yield counts
    finally:
        counts.update(json.loads(until(lambda: run("sh", "-c", END))))  # `kubectl exec` may lose the output


def failures(counts: Mapping[str, int], *deployments: str) -> dict[str, int]:
    """Return the counts of requests that none of these Deployments answered."""
    return {text: count for text, count in counts.items() if text not in deployments}
