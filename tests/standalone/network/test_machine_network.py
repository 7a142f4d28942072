"""The machine's part of the pods' network, as values; `tests/e2e/test_pod_networks.py` has it in the kernel."""

from headgate.standalone.network.machine_network import MachineNetwork, firewall_rules


def test_the_outside_reaches_no_pod_and_pods_reach_the_outside_by_the_machines_address() -> None:
    rules = firewall_rules(80)
    *_, last = rules["filter"].splitlines()
    assert last == "-A HEADGATE-80 -o headgate80 -j DROP"
    assert "-A HEADGATE-80 -s 10.80.128.0/17 ! -o headgate80 -j MASQUERADE" in rules["nat"].splitlines()


def test_the_device_of_a_pod_has_a_name_that_the_kernel_accepts() -> None:
    place = MachineNetwork(126).place("10.126.255.253")
    assert place.device == "hg126-255-253"
    assert len(place.device) <= 15  # IFNAMSIZ without the null character
    assert place.gateway == "10.126.255.254"
