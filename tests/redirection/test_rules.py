"""Tests of the connections that the rules redirect. The rules' text is evaluated as in the kernel: the first match
decides."""

from ipaddress import ip_address, ip_network

import pytest

from headgate.errors import DecodeError
from headgate.redirection import exclusions
from headgate.redirection.exclusions import Exclusions, parse_exclusions
from headgate.redirection.rules import own_rules, removal_transaction, rule_lines, rules, update_transaction

APPLICATION, PROXY = 1000, 1337
POD = {4: "10.1.0.5", 6: "fd00::5"}
OTHER = {4: "10.96.7.7", 6: "fd00:96::7"}
EMPTY = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"


def redirected_port(text, chain, *, to, port, user=APPLICATION, device="eth0", source=""):
    """Walk a chain as the kernel does; return the port that a connection is redirected to, or None."""
    for line in rule_lines(text):
        _, name, *words = line.split()
        if name != chain:
            continue
        known = dict(zip(words[::2], words[1::2], strict=True))
        fits = (
            ("-o" not in known or known["-o"] == device)
            and ("-d" not in known or ip_address(to) in ip_network(known["-d"]))
            and ("-s" not in known or (source and ip_address(source) in ip_network(known["-s"])))
            and ("--dport" not in known or int(known["--dport"]) == port)
            and ("--uid-owner" not in known or int(known["--uid-owner"]) == user)
        )
        if fits and known["-j"] == "RETURN":
            return None
        if fits and known["-j"] == "REDIRECT":
            return int(known["--to-ports"])
        if fits:
            found = redirected_port(text, known["-j"], to=to, port=port, user=user, device=device, source=source)
            if found:
                return found
    return None


@pytest.fixture(params=[4, 6], ids=["IPv4", "IPv6"])
def family(request):
    return request.param


def text_of(family, redirect=Exclusions()):  # noqa: B008  # an immutable value
    return rules(redirect)[0 if family == 4 else 1]


def test_outbound_connections_of_the_application_go_to_the_proxy(family):
    assert redirected_port(text_of(family), "OUTPUT", to=OTHER[family], port=80) == 15001


def test_outbound_connections_of_the_proxy_are_not_redirected(family):
    assert redirected_port(text_of(family), "OUTPUT", to=OTHER[family], port=80, user=PROXY) is None


def test_inbound_connections_except_probes_go_to_the_proxy(family):
    for port, redirected_to in ((80, 15006), (8080, 15006), (22, 15006), (15001, 15006), (15020, None)):
        assert redirected_port(text_of(family), "PREROUTING", to=POD[family], port=port) == redirected_to


def test_the_application_reaches_itself_without_the_proxy(family):
    loopback = {4: "127.0.0.1", 6: "::1"}[family]
    assert redirected_port(text_of(family), "OUTPUT", to=loopback, port=80, device="lo") is None
    assert redirected_port(text_of(family), "OUTPUT", to=POD[family], port=80, device="lo") is None


def test_a_call_of_the_pods_own_service_enters_through_the_inbound_proxy(family):
    call = {"to": POD[family], "port": 8080, "user": PROXY, "device": "lo"}
    assert redirected_port(text_of(family), "OUTPUT", **call) == 15006
    inward = {4: "127.0.0.6", 6: "::6"}[family]
    # The inbound side of the proxy calls the application without redirection.
    assert redirected_port(text_of(family), "OUTPUT", **call, source=inward) is None


def test_an_excluded_inbound_port_is_not_redirected_for_the_pods_own_calls(family):
    text = text_of(family, Exclusions(excluded_inbound_ports=(9090,)))
    assert redirected_port(text, "PREROUTING", to=POD[family], port=9090) is None
    assert redirected_port(text, "OUTPUT", to=POD[family], port=9090, user=PROXY, device="lo") is None
    assert redirected_port(text, "OUTPUT", to=POD[family], port=8080, user=PROXY, device="lo") == 15006
    # The exclusion does not apply to the same port of other pods.
    assert redirected_port(text, "OUTPUT", to=OTHER[family], port=9090) == 15001


def test_dns_over_tcp_and_all_udp_are_not_redirected(family):
    assert redirected_port(text_of(family), "OUTPUT", to=OTHER[family], port=53) is None
    assert all("udp" not in line for line in rule_lines(text_of(family)))
    assert all("-p tcp" in line for line in rule_lines(text_of(family)) if not line.startswith("-A HEADGATE"))


def test_excluded_ports_addresses_and_users_are_not_redirected(family):
    named = parse_exclusions(outbound_ports="25, 587", addresses="10.96.0.1,fd00:96::/112", users="0,42")
    text = text_of(family, named)
    excluded = {4: "10.96.0.1", 6: "fd00:96::1"}[family]
    outside = {4: "10.96.0.2", 6: "fd00:97::1"}[family]
    assert redirected_port(text, "OUTPUT", to=excluded, port=443) is None
    assert redirected_port(text, "OUTPUT", to=outside, port=443) == 15001
    assert redirected_port(text, "OUTPUT", to=outside, port=587) is None
    assert redirected_port(text, "OUTPUT", to=outside, port=443, user=42) is None
    assert redirected_port(text, "PREROUTING", to=POD[family], port=587) == 15006


def test_excluding_the_proxys_own_user_changes_nothing():
    text = text_of(4, Exclusions(excluded_users=(PROXY,)))
    assert redirected_port(text, "OUTPUT", to=POD[4], port=8080, user=PROXY, device="lo") == 15006


def test_lists_may_have_blanks_duplicates_and_trailing_commas():
    assert parse_exclusions(inbound_ports=" 9102,9090 ,9102,,", addresses="10.0.0.1") == Exclusions(
        excluded_inbound_ports=(9102, 9090), excluded_addresses=("10.0.0.1/32",)
    )
    assert parse_exclusions() == Exclusions()


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({"inbound_ports": "http"}, exclusions.INBOUND_PORTS, "'http' is not a port: write numbers from 1 to 65535"),
        ({"inbound_ports": "0"}, exclusions.INBOUND_PORTS, "'0' is not a port"),
        ({"inbound_ports": "15001"}, exclusions.INBOUND_PORTS, "15001 is the sidecar's own port"),
        ({"outbound_ports": "65536"}, exclusions.OUTBOUND_PORTS, "'65536' is not a port"),
        ({"outbound_ports": "-1"}, exclusions.OUTBOUND_PORTS, "'-1' is not a port"),
        ({"addresses": "10.0.0.1/8"}, exclusions.ADDRESSES, "write 10.0.0.0/8 for the whole network"),
        ({"addresses": "db.example"}, exclusions.ADDRESSES, "write addresses or networks, as in 10.96.0.1"),
        ({"users": "root"}, exclusions.USERS, "'root' is not a user ID: write numbers (uid)"),
        ({"users": "4294967295"}, exclusions.USERS, "is not a user ID"),
    ],
)
def test_an_error_names_the_option_and_the_valid_form(given, field, said):
    with pytest.raises(DecodeError) as error:
        parse_exclusions(**given)
    (cause,) = error.value.causes
    assert cause.field == field
    assert said in cause.message


def test_all_errors_are_reported_at_once():
    with pytest.raises(DecodeError) as error:
        parse_exclusions(inbound_ports="a,80,b", users="x")
    assert [cause.field for cause in error.value.causes] == [
        exclusions.INBOUND_PORTS,
        exclusions.INBOUND_PORTS,
        exclusions.USERS,
    ]


def test_jumps_are_added_only_where_they_are_missing():
    text = text_of(4)
    assert update_transaction(text, EMPTY) == text
    again = update_transaction(text, text)
    assert rule_lines(again) == rule_lines(text)[2:]
    assert ":HEADGATE_IN - [0:0]" in again  # declares the chain, which empties it


def test_the_removal_keeps_rules_of_other_programs():
    other_rules = "-A PREROUTING -p tcp -j KUBE-PORTALS\n-A OUTPUT -p tcp -m tcp --dport 1 -j HEADGATE_LIKE\n"
    saved = text_of(4).replace("COMMIT\n", f":HEADGATE_LIKE - [0:0]\n{other_rules}COMMIT\n")
    assert removal_transaction(saved).splitlines() == [
        "*nat",
        "-D PREROUTING -p tcp -j HEADGATE_IN",
        "-D OUTPUT -p tcp -j HEADGATE_OUT",
        "-F HEADGATE_IN",
        "-F HEADGATE_OUT",
        "-X HEADGATE_IN",
        "-X HEADGATE_OUT",
        "COMMIT",
    ]
    assert own_rules(saved) == rule_lines(text_of(4))
    assert removal_transaction(EMPTY) == ""


def test_a_proxy_with_the_user_of_applications_is_recognized_by_its_group(family):
    text = rules(Exclusions(excluded_users=(1337,)), group=1400)[0 if family == 4 else 1]
    assert [line.split(" -m owner ")[1] for line in rule_lines(text) if "owner" in line] == [
        "--gid-owner 1400 -j RETURN",
        "--uid-owner 1337 -j RETURN",
        "--gid-owner 1400 -j HEADGATE_IN",
        "--gid-owner 1400 -j RETURN",
    ]
