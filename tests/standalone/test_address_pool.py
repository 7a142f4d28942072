"""The allocation of loopback addresses, and the guard of an address range."""

import os
import socket

import pytest

from headgate.standalone.address_pool import (
    FIRST_RANGE,
    AddressPool,
    NoAddress,
    claim_range,
    gateway_address,
    guard_address,
    range_of,
)

UNUSED = FIRST_RANGE - 1
"""A range that no other headgate of the machine claims by itself, such as those of tests that run at the same time."""


def test_each_owner_keeps_an_address_of_its_own():
    addresses = AddressPool(77)
    given = {addresses.allocate(f"user {number}", "services") for number in range(2000)}
    assert len(given) == 2000
    assert addresses.allocate("user 7", "services") == addresses.allocate("user 7", "services")
    assert all(addresses.covers(address, "services") for address in given)


def test_the_same_owner_gets_the_same_address_after_a_restart():
    assert AddressPool(77).allocate("Service default/web", "services") == AddressPool(77).allocate(
        "Service default/web", "services"
    )


def test_services_and_pods_get_addresses_from_different_parts_of_the_range():
    addresses = AddressPool(80)
    service, pod = addresses.allocate("a", "services"), addresses.allocate("b", "pods")
    assert service.startswith("127.80.")
    assert int(service.split(".")[2]) < 128 <= int(pod.split(".")[2])
    assert not addresses.covers(service, "pods")
    assert not addresses.covers(pod, "services")


def test_pods_can_use_all_addresses_except_guard_network_and_broadcast_addresses():
    part = [f"127.77.{third}.{host}" for third in range(128, 256) for host in range(1, 255)]
    part.remove(guard_address(77))
    addresses, free = AddressPool(77), set(part[::64])
    for address in part:
        if address not in free:
            addresses.reserve(address, address)
    assert {addresses.allocate(str(number), "pods") for number in range(len(free))} == free
    with pytest.raises(NoAddress, match="delete some"):
        addresses.allocate("one more", "pods")


def test_a_reserved_address_is_free_only_after_its_release():
    addresses = AddressPool(77)
    addresses.reserve("a", "127.77.0.9")
    with pytest.raises(NoAddress, match="used by a"):
        addresses.reserve("b", "127.77.0.9")
    addresses.release("a")
    assert addresses.reserve("b", "127.77.0.9") == "127.77.0.9"


def test_a_range_stays_claimed_while_a_copy_of_its_guard_is_open():
    first, guard = claim_range(UNUSED)
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


def test_only_the_headgate_that_crashed_reclaims_the_range_of_its_orphans(tmp_path):
    record = tmp_path / "range.json"
    first, guard = claim_range(UNUSED, record=record)
    orphan = os.dup(guard.fileno())  # a proxy that outlives headgate keeps the guard open
    guard.close()
    try:
        stranger, other = claim_range(first, record=tmp_path / "other.json")
        other.close()
        assert stranger != first
        for _ in range(2):  # the second round follows a second crash
            again, guard = claim_range(first, record=record)
            assert again == first
            stranger, other = claim_range(first)
            assert stranger != first
            other.close()
            guard.close()
    finally:
        os.close(orphan)


def test_pods_with_networks_of_their_own_have_addresses_that_are_no_loopback_addresses():
    addresses = AddressPool(80, "pod")
    assert addresses.allocate("a", "services").startswith("10.80.")
    assert addresses.covers(addresses.allocate("b", "pods"), "pods")
    assert not addresses.covers("127.80.0.7", "services")
    assert addresses.owner(gateway_address(80)) == "the machine"
    assert [range_of(address) for address in ("127.80.0.7", "10.80.0.7", "10.40.0.7", "None")] == [80, 80, None, None]


def test_a_range_that_the_machine_uses_otherwise_is_not_claimed():
    number, guard = claim_range(UNUSED, without={UNUSED})
    with guard:
        assert number != UNUSED


def test_the_error_names_routes_if_they_overlap_all_ranges():
    with pytest.raises(NoAddress, match="routes of this machine overlap all ranges"):
        claim_range(without=range(77, 127))
