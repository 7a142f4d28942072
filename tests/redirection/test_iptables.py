"""Tests of applying and removing redirection rules, and of the errors if that fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.redirection import iptables
from headgate.redirection.exclusions import Exclusions
from headgate.redirection.iptables import FamilyOutcome, RedirectionError, has_ipv6, is_host
from headgate.redirection.rules import rules

HEADGATE = Path(sys.executable).parent / "headgate"


def test_the_machines_network_namespace_is_distinguished_from_a_pods():
    assert is_host("pid:[4026531836]", 17, 17)
    assert not is_host("pid:[4026531836]", 18, 17)  # A namespace that `ip netns exec` entered.
    assert not is_host("pid:[4026532400]", 17, 17)  # A container, whose first process is the pod's own.
    assert not is_host("pid:[4026531836]", 17, 0)


def test_a_namespace_has_ipv6_if_it_has_an_ipv6_address_besides_loopback():
    loopback = "00000000000000000000000000000001 01 80 10 80       lo\n"
    link_local = "fe80000000000000b8a1a5fffe1c2d3e 02 40 20 80     eth0\n"
    assert not has_ipv6("")
    assert not has_ipv6(loopback)
    assert has_ipv6(loopback + link_local)


def test_the_error_without_iptables_names_the_package_to_install(monkeypatch):
    monkeypatch.setattr(iptables, "SYSTEM_PROGRAMS", "")
    monkeypatch.setattr(iptables, "_reject_host_network", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RedirectionError, match="iptables is not installed: install the package iptables"):
        iptables.apply(rules(Exclusions()))


def test_printing_rules_needs_no_privileges_and_no_iptables():
    done = subprocess.run(
        [HEADGATE, "redirect", "print", "--excluded-inbound-ports", "9090"],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("-A HEADGATE_IN -p tcp -m tcp --dport 9090 -j RETURN") == 2  # IPv4 and IPv6


def test_an_invalid_option_exits_with_code_2():
    done = subprocess.run(
        [HEADGATE, "redirect", "print", "--excluded-users", "root"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--excluded-users" in done.stderr
    assert "'root' is not a user" in done.stderr


def test_the_machines_own_network_is_never_changed(monkeypatch):
    if str(Path("/proc/self/ns/pid").readlink()) != iptables.FIRST_PID_NAMESPACE:
        pytest.skip("within a container the machine's own network can't be distinguished from a pod's")
    monkeypatch.setattr(iptables, "run_program", lambda *command, **_: pytest.fail(f"ran {command}"))
    for action in (lambda: iptables.apply(rules(Exclusions())), iptables.clean):
        with pytest.raises(RedirectionError, match="this is the machine's own network namespace"):
            action()


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Return a function that installs fake iptables programs, in a pod's network without IPv6.

    `kept` is the output of the fake -save program.
    """
    monkeypatch.setattr(iptables, "SYSTEM_PROGRAMS", str(tmp_path))
    monkeypatch.setattr(iptables, "INTERFACES_IPV6", tmp_path / "none")
    monkeypatch.setattr(iptables, "_reject_host_network", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")

    def make(name, kept="", *, restore="/bin/cat > /dev/null", check="exit 0"):
        saved = tmp_path / f"{name}.saved"
        saved.write_text(kept)
        scripts = {
            name: f'[ "$1" = --version ] && echo {name} || {{ {check}; }}',
            f"{name}-save": f"/bin/cat {saved}",
            f"{name}-restore": restore.format(saved=saved),
        }
        for program, script in scripts.items():
            (tmp_path / program).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / program).chmod(0o700)

    return make


WANTED = rules(Exclusions())


def test_new_rules_replace_old_rules_in_the_table_of_the_same_variant(install):
    """A node may have changed from iptables-legacy to nft. Rules in both tables would be active together."""
    install("iptables")
    replace = "/bin/cat > /dev/null; /bin/sed -i '/lo -p tcp/d' {saved}"  # the first transaction lacks this rule
    install("iptables-legacy", WANTED.ipv4, restore=replace)
    assert iptables.apply(WANTED) == (FamilyOutcome("IPv4", "iptables-legacy", changed=False),)


def test_rules_that_the_kernel_does_not_support_are_an_error(install):
    install("iptables", restore="/bin/cat > {saved}", check="echo 'no such match' >&2; exit 2")
    with pytest.raises(RedirectionError, match=r"iptables -t nat -C .*: no such match"):
        iptables.apply(WANTED)


def test_rules_that_another_program_removed_are_an_error(install):
    install("iptables")
    with pytest.raises(RedirectionError, match=r"has 0 of .* rules: another program changes .* at the same time"):
        iptables.apply(WANTED)


def test_rules_that_cannot_be_removed_are_an_error(install):
    install("iptables", WANTED.ipv4)
    with pytest.raises(RedirectionError, match="after the removal; run the command again"):
        iptables.clean()


def test_the_error_for_an_unreadable_table_names_the_missing_capabilities(install, tmp_path):
    install("iptables")
    (tmp_path / "iptables-save").write_text("#!/bin/sh\necho 'Permission denied' >&2\nexit 4\n")
    with pytest.raises(RedirectionError, match=r"Permission denied.* run it as root with the capabilities NET_ADMIN"):
        iptables.apply(WANTED)


def test_programs_outside_path_are_found_and_a_restore_waits_for_other_changes(install, tmp_path):
    install("iptables", restore=f"echo $* > {tmp_path}/arguments; /bin/cat > /dev/null")
    iptables.restore("iptables", "*nat\nCOMMIT\n")
    assert (tmp_path / "arguments").read_text() == "--wait --noflush\n"
