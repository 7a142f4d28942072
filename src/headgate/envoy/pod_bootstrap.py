"""The bootstrap of a proxy in a pod on a cluster, from a stored text that `make golden` writes.

`headgate.envoy.bootstrap` builds it from protobuf messages. Their import would take longer than the remaining start of a sidecar.
"""

import json
from collections.abc import Mapping
from pathlib import Path

STORED = Path(__file__).with_name("pod_bootstrap.json")
NODE, DIRECTORY, SECRETS, HOST, PORT = "{node}", "{directory}", "{secrets}", "{host}", 1
"""What the stored text has in the places of the values."""
BOOTSTRAP = "bootstrap.json"


def pod_bootstrap(node_id: str, xds: str, *, directory: str, secrets: str) -> Mapping[str, bytes]:
    """Return the files of a proxy, by their paths below `directory`: its bootstrap, and the sources of its token and roots.

    `xds` is the `HOST:PORT` of the control plane; the host is a name. `secrets` is the directory with the token and the roots.
    """
    host, _, port = xds.rpartition(":")
    text = STORED.read_text()
    for place, value in ((NODE, node_id), (DIRECTORY, directory), (SECRETS, secrets), (HOST, host)):
        text = text.replace(place, json.dumps(value)[1:-1])
    text = text.replace(f'"port_value": {PORT}', f'"port_value": {int(port)}')
    return {path: json.dumps(content).encode() for path, content in json.loads(text).items()}
