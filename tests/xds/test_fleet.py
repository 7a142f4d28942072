"""What is known of all proxies."""

from headgate.xds.fleet import Fleet, Proxy


def test_the_last_proxy_of_a_sort_is_found_without_looking_at_the_others() -> None:
    fleet = Fleet()
    for number in range(5):
        fleet.expect(str(number))
    looked: list[str] = []

    def is_wanted(proxy: Proxy) -> bool:
        looked.append(proxy.id)
        return proxy.id in wanted

    wanted = {"3", "4"}
    last = fleet.first(is_wanted)
    looked.clear()
    assert fleet.first(is_wanted, last) is last is fleet.proxies["3"]
    assert looked == ["3"]
    fleet.forget("3")
    assert fleet.first(is_wanted, last) is fleet.proxies["4"]
    wanted = set()
    assert fleet.first(is_wanted, last) is None
