"""The endpoints that the sidecars of a cluster have."""

import json

from tests.pods.conftest import SIDECAR, Cluster, until

HOSTS = """
import http.client, json, socket, sys, time
def endpoints():
    connection = http.client.HTTPConnection("admin")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect("/run/headgate/admin.sock")
    connection.request("GET", "/clusters?format=json")
    clusters = json.load(connection.getresponse())["cluster_statuses"]
    connection.close()
    hosts = [host for cluster in clusters for host in cluster.get("host_statuses", ())]
    ejected = [(host, bool(host.get("health_status", {}).get("failed_outlier_check"))) for host in hosts]
    return [[host["address"].get("socket_address", {}).get("address"), value] for host, value in ejected]
while any(is_ejected for _, is_ejected in endpoints()) and "wait" in sys.argv:
    time.sleep(0.2)
print(json.dumps(endpoints()))
"""
"""Prints the address of each endpoint of an Envoy, and whether it has ejected the endpoint; with `wait`, once none is ejected."""


def endpoints_of_proxy(cluster: Cluster, place: str, deployment: str, *options: str) -> list[tuple[str, bool]]:
    """Return the address of each endpoint that the sidecar of a Deployment has, and whether it has ejected the endpoint.

    With the option `wait`, wait until it has ejected none.
    """
    program = ("-n", place, "exec", f"deployment/{deployment}", "-c", SIDECAR, "--", "python3", "-c", HOSTS, *options)
    printed = until(lambda: cluster.kubectl(*program))  # `kubectl exec` may lose it
    return [(address, is_ejected) for address, is_ejected in json.loads(printed)]
