"""The node agent's part in real network namespaces: it enters that of a process, and an unprivileged process verifies it."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.netns.namespaces import PROXY, original

from headgate.admission.redirection_container import RequestedRedirection
from headgate.kubernetes.node_agent import redirect_in_namespace
from headgate.redirection.network_namespaces import NamespaceError

HEADGATE = Path(sys.executable).parent / "headgate"
UID = "0b5a6ab6-6a3e-4a4c-8b1a-1f1f0a6f8a10"
REQUESTED = RequestedRedirection("shop/web-1", UID, "containerd://1", str(PROXY), "9090")
PATIENCE_S = 60
UNPRIVILEGED = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
IS_REDIRECTED = "from headgate.redirection.verification import is_redirected; print(is_redirected())"


@pytest.fixture
def pod(bridge):
    pod = bridge.pod()
    if (done := pod.try_run(*UNPRIVILEGED, sys.executable, "-c", "import headgate")).returncode:
        pytest.skip(f"other users than root may not read this environment: {done.stderr.strip()}")
    return pod


@pytest.fixture
def proc(tmp_path, pod):
    """A directory in the form of /proc, in which the process of the pod's namespace belongs to the pod with `UID`."""
    for name, pid, cgroups in (
        ("1", "self", "0::/"),
        ("self", "self", "0::/"),
        (pod.pid, pod.pid, f"0::/kubepods/pod{UID}"),
    ):
        directory = tmp_path / str(name)
        (directory / "ns").mkdir(parents=True)
        (directory / "ns/net").symlink_to(f"/proc/{pid}/ns/net")
        (directory / "cgroup").write_text(cgroups)
        (directory / "stat").write_text(Path(f"/proc/{pid}/stat").read_text())
    return tmp_path


def is_redirected(pod):
    return pod.run(*UNPRIVILEGED, sys.executable, "-c", IS_REDIRECTED) == "True\n"


def test_an_unprivileged_process_waits_until_the_agent_has_redirected_the_connections(pod, proc):
    command = pod.command("env", "NODE_NAME=node-1", *UNPRIVILEGED, str(HEADGATE), "sidecar", "wait-redirected")
    assert not is_redirected(pod)
    with subprocess.Popen(command) as waiting:
        try:
            asyncio.run(redirect_in_namespace(REQUESTED, proc))
            assert waiting.wait(PATIENCE_S) == 0
        finally:
            waiting.kill()


def test_the_agent_adds_the_rules_of_the_privileged_init_container(pod, bridge, proc):
    other = bridge.pod()
    asyncio.run(redirect_in_namespace(REQUESTED, proc))
    other.run("env", f"HEADGATE_PROXY_USER={PROXY}", "EXCLUDED_INBOUND_PORTS=9090", HEADGATE, "sidecar", "redirect")
    for family in ("iptables", "ip6tables"):
        by_agent, by_init_container = (
            [line for line in place.run(f"{family}-save", "-t", "nat").splitlines() if line.startswith("-A")]
            for place in (pod, other)
        )
        assert by_agent == by_init_container


def test_connections_of_the_application_arrive_at_its_proxy(pod, proc):
    asyncio.run(redirect_in_namespace(REQUESTED, proc))
    with pod.listening(15001) as proxy, pod.open_socket() as client:
        for connection in (proxy, client):
            connection.settimeout(PATIENCE_S)
        client.connect(("10.96.7.7", 80))
        accepted, _ = proxy.accept()
        with accepted:
            assert original(accepted) == ("10.96.7.7", 80)


def test_the_redirection_does_not_hold_when_a_rule_of_one_ip_family_is_missing(pod, proc):
    asyncio.run(redirect_in_namespace(REQUESTED, proc))
    assert is_redirected(pod)
    for family in ("iptables", "ip6tables"):
        pod.run(family, "-t", "nat", "-D", "OUTPUT", "-p", "tcp", "-j", "HEADGATE_OUT")
        assert not is_redirected(pod)
        pod.run(family, "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-j", "HEADGATE_OUT")
    assert is_redirected(pod)


def test_a_container_that_starts_again_beside_the_sidecar_sees_that_the_redirection_holds(pod, proc):
    with pod.listening(15001, "::"):
        assert not is_redirected(pod)
        asyncio.run(redirect_in_namespace(REQUESTED, proc))
        assert is_redirected(pod)


def test_the_agent_changes_no_rules_of_its_own_network(pod, proc):
    (proc / f"{pod.pid}/ns/net").unlink()
    (proc / f"{pod.pid}/ns/net").symlink_to("/proc/self/ns/net")
    with pytest.raises(NamespaceError, match="has a network namespace of the pod's own"):
        asyncio.run(redirect_in_namespace(REQUESTED, proc))


@pytest.mark.parametrize("family", ["iptables", "ip6tables"])
def test_the_redirection_does_not_hold_before_all_rules_are_verified(pod, tmp_path, family):
    """Some kernels accept a rule and ignore a part of it, which `-C` reports after the rules are added."""
    for name in (family, f"{family}-save", f"{family}-restore"):
        (tmp_path / name).symlink_to(shutil.which(name, path="/usr/sbin:/sbin"))
    (tmp_path / family).rename(tmp_path / f"{family}-real")
    script = f'case "$*" in *"-C HEADGATE_IN "*) exit 1;; esac; exec -a {family} {tmp_path / family}-real "$@"'
    (tmp_path / family).write_text(f"#!/bin/bash\n{script}\n")
    (tmp_path / family).chmod(0o755)
    apply = (HEADGATE, "redirect", "apply")
    for _ in range(2):
        assert "-C HEADGATE_IN" in pod.try_run("env", f"PATH={tmp_path}:/usr/bin:/bin", *apply).stderr
        assert not is_redirected(pod)
        pod.run(*apply)
        assert is_redirected(pod)
