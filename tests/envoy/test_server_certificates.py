"""The compiler refuses exactly the certificates of Gateways that Envoy refuses."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.make.objects import gateway, listener
from tests.make.server_certificates import PAIRS, Pair, secret
from tests.make.values import compiled

from headgate.standalone.proxies.envoy_binary import find_envoy


def is_accepted_by_envoy(pair: Pair, directory: Path) -> bool:
    """Return whether Envoy accepts a listener with a certificate and a key."""
    certificate = {"certificate_chain": {"inline_string": pair.chain}, "private_key": {"inline_string": pair.key}}
    tls = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
    context = {"@type": tls, "common_tls_context": {"tls_certificates": [certificate]}}
    chain = {"filters": [], "transport_socket": {"name": "tls", "typed_config": context}}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    config = {"static_resources": {"listeners": [{"name": "https", "address": address, "filter_chains": [chain]}]}}
    (directory / "envoy.json").write_text(json.dumps(config))
    command = [find_envoy(os.environ), "--mode", "validate", "-c", directory / "envoy.json"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_listener_serves_the_certificates_that_envoy_accepts(pair: Pair, tmp_path: Path) -> None:
    item = listener(443, "https", protocol="HTTPS", tls={"certificateRefs": [{"name": "shop"}]})
    status = {"addresses": [{"type": "IPAddress", "value": "10.2.0.1"}]}
    result = compiled(gateway("edge", item, status=status), secret("shop", pair))
    assert bool(result.mesh.gateways) is is_accepted_by_envoy(pair, tmp_path)
