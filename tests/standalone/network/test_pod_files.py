"""The files by which programs of a pod resolve names."""

from headgate.standalone.network.pod_files import HOSTS, RESOLVER, SWITCH, PodName, host_name, machine_files, pod_files

CART = PodName("shop", "cart-0", "cart", "10.80.128.4")


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
    assert "10.80.128.4\tcart-0\n" in files(CART._replace(subdomain=""))[HOSTS]


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
