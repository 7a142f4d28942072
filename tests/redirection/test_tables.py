"""Where rules may go, and what is said where they can't."""

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.redirection import tables
from headgate.redirection.options import Redirect
from headgate.redirection.rules import rules
from headgate.redirection.tables import RedirectionError, has_ipv6, is_host

HEADGATE = Path(sys.executable).parent / "headgate"


def test_the_machines_own_network_is_told_from_a_pods():
    assert is_host("pid:[4026531836]", 17, 17)
    assert not is_host("pid:[4026531836]", 18, 17)  # a namespace on the machine: ip netns exec
    assert not is_host("pid:[4026532400]", 17, 17)  # a container, whose first process is its own
    assert not is_host("pid:[4026531836]", 17, 0)


def test_ipv6_is_where_others_could_reach_it():
    loopback = "00000000000000000000000000000001 01 80 10 80       lo\n"
    link_local = "fe80000000000000b8a1a5fffe1c2d3e 02 40 20 80     eth0\n"
    assert not has_ipv6("")
    assert not has_ipv6(loopback)
    assert has_ipv6(loopback + link_local)


def test_a_system_without_iptables_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(tables, "SYSTEM_PROGRAMS", "")
    monkeypatch.setattr(tables, "_refuse_host", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RedirectionError, match="there is no iptables here: install the package iptables"):
        tables.apply(rules(Redirect()))


def test_printing_needs_no_privileges_and_no_iptables():
    done = subprocess.run(
        [HEADGATE, "redirect", "print", "--excluded-inbound-ports", "9090"],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("-A HEADGATE_IN -p tcp -m tcp --dport 9090 -j RETURN") == 2  # IPv4 and IPv6


def test_a_wrong_option_is_wrong_usage():
    done = subprocess.run(
        [HEADGATE, "redirect", "print", "--excluded-users", "root"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--excluded-users" in done.stderr
    assert "'root' is not a user" in done.stderr


def test_the_machines_own_network_is_never_touched(monkeypatch):
    if str(Path("/proc/self/ns/pid").readlink()) != tables.FIRST_PID_NAMESPACE:
        pytest.skip("within a container the machine's own network can't be told from a pod's")
    monkeypatch.setattr(tables, "_run", lambda *command, **_: pytest.fail(f"ran {command}"))
    for action in (lambda: tables.apply(rules(Redirect())), tables.clean):
        with pytest.raises(RedirectionError, match="this is the machine's own network, not a pod's"):
            action()
