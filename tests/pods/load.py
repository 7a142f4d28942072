"""A continuous load from a pod of a real cluster. It goes on while the API server is down."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.e2e.world import until
from tests.pods.conftest import Cluster

CONNECTIONS = 4
SEND = f"""
import collections, http.client, json, os, sys, threading, time
host, running, result, *options = sys.argv[1:]
found = collections.Counter()

def send():
    connection = http.client.HTTPConnection(host, 8080, timeout=10)
    while os.path.exists(running):
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
        time.sleep(0.005)

threads = [threading.Thread(target=send) for _ in range({CONNECTIONS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with open(result + ".part", "w") as file:
    json.dump(found, file)
os.rename(result + ".part", result)
"""
"""Sends requests while the file `running` exists; then writes how many each Deployment answered, and the failures.

With the option `reconnect`, each request has its own connection."""
RUNNING, RESULT = "/tmp/running", "/tmp/result"


@contextmanager
def load(
    cluster: Cluster, namespace: str, host: str, *, client: str = "client", reconnect: bool = False
) -> Iterator[dict[str, int]]:
    """Send requests from the Deployment `client` during the block; with `reconnect`, each on its own connection.

    The yielded counts, by Deployment or by the text of a failure, are complete after the block.
    """

    def run(*command: str) -> str:
        return cluster.kubectl("-n", namespace, "exec", f"deployment/{client}", "-c", "app", "--", *command)

    counts: dict[str, int] = {}
    options = ["reconnect"] if reconnect else []
    run("sh", "-c", f"rm -f {RESULT}; touch {RUNNING}")
    run("sh", "-c", 'nohup python3 -c "$0" "$@" > /dev/null 2>&1 &', SEND, host, RUNNING, RESULT, *options)
    try:
        yield counts
    finally:
        run("rm", "-f", RUNNING)
        counts.update(json.loads(until(lambda: run("sh", "-c", f"cat {RESULT} 2> /dev/null || true"))))


def failures(counts: Mapping[str, int], *deployments: str) -> dict[str, int]:
    """Return the counts of requests that none of these Deployments answered."""
    return {text: count for text, count in counts.items() if text not in deployments}
