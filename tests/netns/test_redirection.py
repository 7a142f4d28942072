"""Redirection rules in the kernel: where connections arrive, tested with sockets instead of proxies."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.netns.namespaces import APPLICATION, PROXY, Bridge, has_ipv6, original

HEADGATE = Path(sys.executable).parent / "headgate"
SERVICE = "10.96.7.7"  # an address without a route
PATIENCE_S = 60
needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="needs a kernel with IPv6")


@pytest.fixture(scope="module")
def pods(bridge):
    return bridge.pod(), bridge.pod()


@pytest.fixture(autouse=True)
def _clean(pods):
    yield
    for pod in pods:
        for family in ("iptables", "ip6tables"):
            pod.run(family, "-t", "nat", "-F")
            pod.run(family, "-t", "nat", "-X")


@pytest.fixture
def listen():
    """Return a function that opens a listening socket in place of a proxy or an application."""
    with contextlib.ExitStack() as kept:

        def make(pod, port, address="0.0.0.0"):
            listening = kept.enter_context(pod.listening(port, address))
            listening.settimeout(PATIENCE_S)
            return listening

        yield make


def apply(pod, *options):
    return pod.run(HEADGATE, "redirect", "apply", *options)


def rules_of(pod, family="iptables"):
    lines = pod.run(f"{family}-save", "-t", "nat").splitlines()
    return [line for line in lines if line.startswith(("-A", ":HEADGATE"))]


def original_destination(server, client, host, port, *, user=APPLICATION, source=""):
    """Connect, accept at `server`, and return the original destination of the connection."""
    with client.open_socket(socket.AF_INET6 if ":" in host else socket.AF_INET, user=user) as calling:
        calling.settimeout(PATIENCE_S)
        if source:
            calling.bind((source, 0))
        calling.connect((host, port))
        taken, _ = server.accept()
        with taken:
            assert taken.getpeername()[1] == calling.getsockname()[1]
            return original(taken)


def refused(client, host, port, *, user=APPLICATION):
    with client.open_socket(socket.AF_INET6 if ":" in host else socket.AF_INET, user=user) as calling:
        calling.settimeout(PATIENCE_S)
        try:
            calling.connect((host, port))
        except ConnectionRefusedError:
            return True
        return False


def test_outbound_connections_of_the_application_arrive_at_its_proxy(pods, listen):
    client, other = pods
    apply(client)
    proxy, elsewhere = listen(client, 15001), listen(other, 8080)
    assert original_destination(proxy, client, SERVICE, 80) == (SERVICE, 80)
    assert original_destination(proxy, client, other.address, 8080) == (other.address, 8080)
    assert original_destination(proxy, client, SERVICE, 80, user=0) == (
        SERVICE,
        80,
    )  # connections of root are redirected too
    assert original_destination(elsewhere, client, other.address, 8080, user=PROXY) == (other.address, 8080)


def test_inbound_connections_arrive_at_the_pods_proxy(pods, listen):
    pod, other = pods
    apply(pod)
    proxy, probes = listen(pod, 15006), listen(pod, 15020)
    listen(pod, 8080)
    for port in (8080, 22, 9999, 15001, 15006):
        assert original_destination(proxy, other, pod.address, port) == (pod.address, port)
    assert original_destination(probes, other, pod.address, 15020) == (pod.address, 15020)


def test_the_application_reaches_itself_without_the_proxy(pods, listen):
    pod, _ = pods
    apply(pod)
    application = listen(pod, 8080)
    for host in ("127.0.0.1", "127.77.0.1", pod.address):
        assert original_destination(application, pod, host, 8080) == (host, 8080)


def test_a_call_to_the_pods_own_service_enters_through_the_inbound_proxy(pods, listen):
    pod, _ = pods
    apply(pod)
    inbound, application = listen(pod, 15006), listen(pod, 8080)
    assert original_destination(inbound, pod, pod.address, 8080, user=PROXY) == (pod.address, 8080)
    assert original_destination(application, pod, pod.address, 8080, user=PROXY, source="127.0.0.6") == (
        pod.address,
        8080,
    )
    assert original_destination(application, pod, "127.0.0.1", 8080, user=PROXY) == ("127.0.0.1", 8080)


def test_excluded_ports_addresses_and_users_are_not_redirected(pods, listen):
    pod, other = pods
    apply(
        pod,
        "--excluded-inbound-ports=9090, 9102",
        "--excluded-outbound-ports=587",
        f"--excluded-addresses={other.address}",
        "--excluded-users=1001",
    )
    proxy, inbound = listen(pod, 15001), listen(pod, 15006)
    metrics, api, mail = listen(pod, 9090), listen(other, 443), listen(other, 587)
    assert original_destination(metrics, other, pod.address, 9090) == (pod.address, 9090)
    assert original_destination(metrics, pod, pod.address, 9090, user=PROXY) == (pod.address, 9090)
    assert original_destination(inbound, other, pod.address, 9091) == (pod.address, 9091)
    assert original_destination(api, pod, other.address, 443) == (other.address, 443)
    assert original_destination(mail, pod, other.address, 587) == (other.address, 587)
    assert original_destination(proxy, pod, SERVICE, 443) == (SERVICE, 443)
    assert refused(pod, other.address, 444, user=1001)
    apply(pod, "--excluded-users=1001")
    assert original_destination(api, pod, other.address, 443, user=1001) == (other.address, 443)
    assert original_destination(proxy, pod, other.address, 443) == (other.address, 443)


def test_dns_is_not_redirected_over_tcp_or_udp(pods, listen):
    pod, other = pods
    apply(pod)
    listen(pod, 15001)
    assert original_destination(listen(other, 53), pod, other.address, 53) == (other.address, 53)
    with other.entered():
        server = socket.socket(type=socket.SOCK_DGRAM)
    with pod.entered():
        client = socket.socket(type=socket.SOCK_DGRAM)
    with server, client:
        server.bind((other.address, 53))
        server.settimeout(PATIENCE_S)
        client.sendto(b"query", (other.address, 53))
        assert server.recv(100) == b"query"


def test_a_repeated_apply_changes_nothing_and_new_options_replace_the_rules(pods):
    pod, _ = pods
    assert "IPv4: redirected (" in apply(pod, "--excluded-inbound-ports=9090")
    before = rules_of(pod)
    assert "IPv4: already redirected by the same rules" in apply(pod, "--excluded-inbound-ports=9090")
    assert rules_of(pod) == before
    apply(pod, "--excluded-inbound-ports=9102")
    assert rules_of(pod) == [line.replace("9090", "9102") for line in before]


def test_cleaning_removes_only_headgates_rules(pods, listen):
    pod, other = pods
    pod.run("iptables-restore", "--noflush", stdin=OTHER_RULES)
    before = rules_of(pod)
    apply(pod)
    assert len(rules_of(pod)) > len(before)
    assert "IPv4: no longer redirected" in pod.run(HEADGATE, "redirect", "clean")
    assert rules_of(pod) == before
    assert "IPv4: not redirected" in pod.run(HEADGATE, "redirect", "clean")
    assert original_destination(listen(other, 8080), pod, other.address, 8080) == (other.address, 8080)


OTHER_RULES = "*nat\n:OTHER - [0:0]\n-A OUTPUT -d 10.9.9.9/32 -p tcp -j OTHER\n-A OTHER -j RETURN\nCOMMIT\n"


def test_rules_of_another_iptables_variant_are_found_and_removed(pods):
    pod, _ = pods
    printed = pod.run(HEADGATE, "redirect", "print").split("# ip6tables-restore")[0]
    if pod.try_run("iptables-legacy-restore", "--noflush", stdin=printed).returncode:
        pytest.skip("needs iptables-legacy, and a kernel that has its tables")
    assert "already redirected by the same rules (iptables-legacy)" in apply(pod)
    assert not rules_of(pod, "iptables-nft")  # the rules were not added a second time
    assert "IPv4: no longer redirected (iptables-legacy)" in pod.run(HEADGATE, "redirect", "clean")
    assert not rules_of(pod, "iptables-legacy")


def test_an_invalid_iptables_restore_input_changes_no_rule(pods, listen):
    pod, other = pods
    apply(pod)
    before = rules_of(pod)
    broken = pod.run("iptables-save", "-t", "nat").replace("--to-ports 15001", "--to-ports many")
    assert pod.try_run("iptables-restore", "--noflush", stdin=broken).returncode
    assert rules_of(pod) == before  # the command relies on iptables-restore being one transaction
    assert original_destination(listen(pod, 15006), other, pod.address, 80) == (pod.address, 80)


def test_the_command_without_privileges_names_the_missing_capabilities(pods):
    pod, _ = pods
    done = pod.try_run(*without_capabilities("redirect", "apply"))
    if "Permission denied" in done.stderr and "iptables" not in done.stderr:
        pytest.skip("other users than root may not read this environment")
    assert done.returncode == 1
    assert "run it as root with the capabilities NET_ADMIN" in done.stderr
    assert not rules_of(pod)


def without_capabilities(*arguments):
    """Return a headgate command that runs as root without capabilities."""
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all", HEADGATE, *arguments]


@needs_ipv6
def test_ipv6_is_redirected_like_ipv4(pods, listen):
    client, other = pods
    assert "IPv6: redirected (" in apply(client, f"--excluded-addresses={other.address6}")
    apply(other)
    outbound, inbound = listen(client, 15001, "::"), listen(other, 15006, "::")
    assert original_destination(outbound, client, "fd00:96::7", 80) == ("fd00:96::7", 80)
    assert original_destination(inbound, client, other.address6, 8080) == (other.address6, 8080)
    assert original_destination(listen(client, 8080, "::"), client, "::1", 8080) == ("::1", 8080)


@needs_ipv6
def test_ipv6_calls_of_a_pod_to_itself_are_distinguished_by_their_source_address(pods, listen):
    pod, _ = pods
    apply(pod)
    apply(pod)  # the second run finds an existing address
    inbound, application = listen(pod, 15006, "::"), listen(pod, 8080, "::")
    assert original_destination(inbound, pod, pod.address6, 8080, user=PROXY) == (pod.address6, 8080)
    assert original_destination(application, pod, pod.address6, 8080, user=PROXY, source="::6") == (pod.address6, 8080)
    pod.run(HEADGATE, "redirect", "clean")
    assert "::6" not in pod.run("ip", "-6", "addr", "show", "dev", "lo")
    pod.run(HEADGATE, "redirect", "clean")


@needs_ipv6
def test_connections_to_a_link_local_address_arrive_at_the_proxy(pods, listen):
    client, pod = pods
    apply(pod)
    application, inbound = listen(pod, 8080, "::"), listen(pod, 15006, "::")
    local = pod.run("sh", "-c", "ip -6 -o addr show dev eth0 scope link | awk '{print $4}'").split("/")[0]
    with client.open_socket(socket.AF_INET6) as calling:
        calling.settimeout(PATIENCE_S)
        with client.entered():
            device = socket.if_nametoindex("eth0")
        calling.connect((local, 8080, 0, device))
        taken, _ = inbound.accept()
        with taken:
            assert original(taken) == (local, 8080)
    application.setblocking(False)
    with pytest.raises(BlockingIOError):
        application.accept()


def test_a_pod_without_ipv6_gets_no_ipv6_rules(listen):
    with contextlib.closing(Bridge()) as bridge:
        pod = bridge.pod()
        pod.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 || true")
        output = apply(pod)
        assert "IPv4: redirected" in output
        assert "IPv6" not in output
        assert original_destination(listen(pod, 15001), pod, SERVICE, 80) == (SERVICE, 80)


def test_namespaces_end_when_the_tests_are_killed():
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    for pid in map(int, done.stdout.split()):
        with contextlib.suppress(ProcessLookupError):  # the process has already ended
            holder = os.pidfd_open(pid)
            ended, _, _ = select.select([holder], [], [], PATIENCE_S)
            os.close(holder)
            assert ended


KILLED = """
import os, signal
from tests.netns.namespaces import Bridge
bridge = Bridge()
print(bridge.pid, bridge.pod().pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
