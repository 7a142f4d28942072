"""Listening sockets on loopback, and the reuse of addresses at the next start."""

import socket
from contextlib import closing

import pytest
from tests.ports import free_port

from headgate.errors import HeadgateError
from headgate.standalone.address_pool import FIRST_RANGE
from headgate.standalone.listeners import FIRST_LOCALHOST_PORT, address_of, free_address, listen, localhost_port


def test_port_0_selects_the_port_of_the_last_start_if_it_is_free() -> None:
    before = f"127.0.0.1:{free_port()}"
    with listen("127.0.0.1:0", before) as again:
        assert address_of(again) == before
        with listen("127.0.0.1:0", before) as other:
            assert address_of(other) != before


def test_an_error_names_a_requested_port_that_is_in_use() -> None:
    with listen("127.0.0.1:0", "") as first:
        taken = address_of(first)
        with pytest.raises(
            HeadgateError, match=f"can't listen on {taken}: Address already in use; choose another port"
        ):
            listen(taken, taken)


@pytest.mark.parametrize("address", ["0.0.0.0:80", "127.0.0.1", "127.0.0.1:x", "localhost:80"])
def test_an_address_that_is_not_loopback_is_rejected(address: str) -> None:
    with pytest.raises(HeadgateError, match="is not a loopback address; write for example"):
        listen(address, "")


def test_a_port_above_65535_is_out_of_range() -> None:
    with pytest.raises(HeadgateError, match="port 99999 is out of range 1 to 65535"):
        listen("127.0.0.1:99999", "")


def test_the_address_of_an_adopted_process_stays_the_same() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as adopted:
        before = address_of(adopted)
        assert free_address("127.0.0.1:0", before, is_adopted=True) == before
        assert free_address("127.0.0.1:0", before, is_adopted=False) != before


def test_each_range_has_its_own_port_for_names_and_another_one_while_a_program_has_that() -> None:
    """Two headgates that start at the same time have different ranges, so they do not select the same port."""
    number = next(number for number in range(FIRST_RANGE, FIRST_RANGE + 50) if is_free(preferred(number)))
    assert localhost_port(0, number, 0, is_adopted=False) == preferred(number)
    with listen(f"127.0.0.1:{preferred(number)}", ""):
        last = free_port()
        assert localhost_port(0, number, last, is_adopted=False) == last
        assert localhost_port(0, number, 0, is_adopted=False) != preferred(number)


def test_a_selected_port_for_names_that_is_in_use_is_an_error() -> None:
    with listen("127.0.0.1:0", "") as other:
        taken = int(address_of(other).rpartition(":")[2])
        with pytest.raises(HeadgateError, match="Address already in use; choose another port"):
            localhost_port(taken, FIRST_RANGE, 0, is_adopted=False)
        assert localhost_port(0, FIRST_RANGE, taken, is_adopted=True) == taken  # by the gateway of before


def preferred(number: int) -> int:
    return FIRST_LOCALHOST_PORT + number - FIRST_RANGE


def is_free(number: int) -> bool:
    with closing(socket.socket()) as tried:
        return tried.connect_ex(("127.0.0.1", number)) != 0
