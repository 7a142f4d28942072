"""Listening sockets on loopback, and the reuse of addresses at the next start."""

import socket
from contextlib import closing

import pytest
from tests.ports import free_port

from headgate.errors import HeadgateError
from headgate.standalone.listeners import address_of, free_address, listen


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
