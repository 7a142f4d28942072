"""The network of a pod that shares the machine's; `tests/e2e/test_pod_networks.py` has pods with networks of their own."""

import os
import socket

from headgate.standalone.network.pod_network import MACHINE, way_to_own_network


async def test_a_pod_in_the_machines_network_is_reached_as_the_machine_is() -> None:
    await MACHINE.join(None, ())
    with socket.create_server(("127.0.0.1", 0)) as server:
        _, writer = await MACHINE.connect("127.0.0.1", server.getsockname()[1])
        writer.close()
        await writer.wait_closed()
    async with MACHINE.target("127.77.128.4", 8080) as target:
        assert target == "127.77.128.4:8080"
    await MACHINE.leave()


def test_a_program_in_the_machines_network_needs_no_isolation() -> None:
    assert MACHINE.has(os.getpid())
    assert MACHINE.proxy_isolation() is None
    assert MACHINE.isolation(None, "cart-0") is None


def test_a_pod_that_wants_the_network_of_the_machine_gets_its_own_without_that_field() -> None:
    option = "headgate up --network pod"
    assert way_to_own_network(uses_host=False, own_networks=False) == option
    assert way_to_own_network(uses_host=True, own_networks=True) == "remove spec.hostNetwork"
    assert way_to_own_network(uses_host=True, own_networks=False) == f"remove spec.hostNetwork; {option}"
