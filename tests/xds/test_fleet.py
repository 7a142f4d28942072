"""Tests of the fleet of proxies."""

from headgate.xds.fleet import Fleet, FleetProxy


def test_a_search_checks_the_last_result_before_other_proxies() -> None:
    fleet = Fleet()
    for number in range(5):
        fleet.expect(str(number))
    checked: list[str] = []

    def is_wanted(proxy: FleetProxy) -> bool:
        checked.append(proxy.id)
        return proxy.id in wanted

    wanted = {"3", "4"}
    last = fleet.find(is_wanted)
    checked.clear()
    assert fleet.find(is_wanted, last) is last is fleet.proxies["3"]
    assert checked == ["3"]
    fleet.remove("3")
    assert fleet.find(is_wanted, last) is fleet.proxies["4"]
    wanted = set()
    assert fleet.find(is_wanted, last) is None
