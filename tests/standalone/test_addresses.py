import os
import socket

import pytest

from headgate.standalone.addresses import Addresses, NoAddress, claim_range, guard_address


def test_an_address_stays_with_its_user_and_nobody_else_gets_it():
    addresses = Addresses(77)
    given = {addresses.take(f"user {number}", "services") for number in range(2000)}
    assert len(given) == 2000
    assert addresses.take("user 7", "services") == addresses.take("user 7", "services")
    assert all(addresses.covers(address, "services") for address in given)


def test_the_same_name_gets_the_same_address_after_a_restart():
    assert Addresses(77).take("Service default/web", "services") == Addresses(77).take(
        "Service default/web", "services"
    )


def test_services_and_pods_live_apart():
    addresses = Addresses(80)
    service, pod = addresses.take("a", "services"), addresses.take("b", "pods")
    assert service.startswith("127.80.")
    assert int(service.split(".")[2]) < 128 <= int(pod.split(".")[2])
    assert not addresses.covers(service, "pods")
    assert not addresses.covers(pod, "services")


def test_a_full_part_says_so_and_never_gives_network_or_broadcast_addresses():
    addresses = Addresses(77)
    given = [addresses.take(str(number), "pods") for number in range(128 * 254 - 1)]  # one is the guard's
    assert not {address.split(".")[3] for address in given} & {"0", "255"}
    assert guard_address(77) not in given
    with pytest.raises(NoAddress, match="delete some"):
        addresses.take("one more", "pods")


def test_a_released_address_is_free_again_and_a_held_one_is_not():
    addresses = Addresses(77)
    addresses.hold("a", "127.77.0.9")
    with pytest.raises(NoAddress, match="used by a"):
        addresses.hold("b", "127.77.0.9")
    addresses.release("a")
    assert addresses.hold("b", "127.77.0.9") == "127.77.0.9"


def test_two_headgates_own_different_ranges_while_a_copy_of_the_guard_is_open():
    first, guard = claim_range()
    copy = socket.fromfd(guard.fileno(), socket.AF_INET, socket.SOCK_STREAM)
    try:
        assert guard.get_inheritable()
        second, other = claim_range(first)
        other.close()
        assert second != first
        guard.close()
        third, other = claim_range(first)
        other.close()
        assert third != first  # an orphan that inherited the guard still owns the range
    finally:
        copy.close()
        guard.close()
    again, guard = claim_range(first)
    guard.close()
    assert again == first


def test_after_a_crash_a_headgate_gets_its_range_back_and_others_do_not(tmp_path):
    record = tmp_path / "range.json"
    first, guard = claim_range(record=record)
    orphan = os.dup(guard.fileno())  # as a proxy that outlived headgate holds it
    guard.close()
    try:
        stranger, other = claim_range(first, record=tmp_path / "other.json")
        other.close()
        assert stranger != first
        for _ in range(2):  # and again after the next crash
            again, guard = claim_range(first, record=record)
            assert again == first
            stranger, other = claim_range(first)
            assert stranger != first
            other.close()
            guard.close()
    finally:
        os.close(orphan)
