"""The files by which programs of a pod resolve names."""

import pytest

from headgate.resources.core.pod_spec import DnsConfig, DnsOption, HostAlias, PodSpec
from headgate.standalone.network.pod_files import HOSTS, RESOLVER, SWITCH, PodName, host_name, machine_files, pod_files

CART = PodName("shop", "cart-0", "10.80.128.4", PodSpec(subdomain="cart"))

SERVERS = "nameserver 10.80.255.254\nnameserver 192.0.2.53\noptions ndots:2 edns0\n"


def files(pod: PodName = CART, **machine: str) -> dict[str, str]:
    paths = {"resolver": RESOLVER, "switch": SWITCH}
    texts = {paths[name]: text for name, text in machine.items()}
    return pod_files(pod, resolver="10.80.255.254", domain="cluster.local", machine=texts)


def test_short_names_are_searched_in_the_namespace_then_in_the_cluster_then_where_the_machine_searches() -> None:
    written = files(resolver="nameserver 192.0.2.1\nsearch example.org example.com\n")[RESOLVER]
    assert written == (
        "search shop.svc.cluster.local svc.cluster.local cluster.local example.org example.com\n"
        "nameserver 10.80.255.254\n"
        "options ndots:5\n"
    )


def test_a_pod_of_a_headless_service_knows_its_full_name() -> None:
    assert "10.80.128.4\tcart-0.cart.shop.svc.cluster.local cart-0\n" in files()[HOSTS]
    assert "10.80.128.4\tcart-0\n" in files(CART._replace(spec=PodSpec()))[HOSTS]


def test_aliases_of_hosts_follow_the_pods_own_line() -> None:
    alias = HostAlias(ip="192.0.2.7", hostnames=("legacy", "legacy.example"))
    assert files(CART._replace(spec=PodSpec(host_aliases=(alias,))))[HOSTS].endswith(
        "10.80.128.4\tcart-0\n192.0.2.7\tlegacy\tlegacy.example\n"
    )


@pytest.mark.parametrize(
    ("policy", "machine", "expected"),
    [
        (
            "ClusterFirst",
            "search example.org\n",
            "search shop.svc.cluster.local svc.cluster.local cluster.local example.org own.example\n" + SERVERS,
        ),
        (
            "Default",
            "nameserver 127.0.0.53\nnameserver 198.51.100.1\nsearch example.org\noptions rotate ndots:1\n",
            "search example.org own.example\nnameserver 198.51.100.1\nnameserver 192.0.2.53\noptions rotate ndots:2 edns0\n",
        ),
        (
            "Default",
            "nameserver 127.0.0.53\nnameserver 2001:db8::1\n",
            "search own.example\n" + SERVERS,
        ),
        ("None", "search example.org\n", "search own.example\nnameserver 192.0.2.53\noptions ndots:2 edns0\n"),
    ],
)
def test_a_pod_chooses_its_resolvers(policy: str, machine: str, expected: str) -> None:
    config = DnsConfig(
        nameservers=("192.0.2.53",),
        searches=("own.example",),
        options=(DnsOption(name="ndots", value="2"), DnsOption(name="edns0")),
    )
    pod = CART._replace(spec=PodSpec(dns_policy=policy, dns_config=config))
    assert files(pod, resolver=machine)[RESOLVER] == expected


def test_names_come_from_files_and_dns_alone() -> None:
    written = files(switch="passwd: files\nhosts: files resolve [!UNAVAIL=return] dns\nnetworks: files\n")[SWITCH]
    assert written == "passwd: files\nhosts: files dns\nnetworks: files\n"
    assert SWITCH not in files()


def test_a_host_name_is_cut_to_a_label_of_dns() -> None:
    assert host_name("cart-0") == "cart-0"
    assert host_name("c" * 62 + "-" + "0" * 9) == "c" * 62


def test_files_of_the_machine_in_another_encoding_are_read(tmp_path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_bytes(b"# Z\xfcrich\nsearch example.org\n")
    assert machine_files([str(path), str(tmp_path / "missing")]) == {str(path): "# Z\ufffdrich\nsearch example.org\n"}
