"""Answers of the pods' resolver, and what it forwards."""

import asyncio
import socket

import dns.asyncquery
import dns.message
import dns.rcode
import pytest
from tests.make.objects import obj, port, service

from headgate.errors import HeadgateError
from headgate.standalone.network import resolver as resolver_module
from headgate.standalone.network.records import records_of
from headgate.standalone.network.resolver import Resolver, answer, machine_resolvers
from headgate.standalone.store.memory import MemoryStore

CART = service("cart", port(8080, "http"), clusterIP="10.80.0.7")
ALIAS = obj("Service", "alias", spec={"type": "ExternalName", "externalName": "cart.default.svc.cluster.local"})
OUTSIDE = obj("Service", "outside", spec={"type": "ExternalName", "externalName": "example.org"})
LOOP = obj("Service", "loop", spec={"type": "ExternalName", "externalName": "loop.default.svc.cluster.local"})
RECORDS = records_of([CART, ALIAS, OUTSIDE, LOOP], [], "cluster.local")
OUTSIDE_QUERY = dns.message.make_query("example.org", "A").to_wire()
CART_NAME = "cart.default.svc.cluster.local"


def ask(name: str, kind: str = "A") -> tuple[str, list[str]]:
    response = answer(dns.message.make_query(name, kind), RECORDS)
    assert response
    return dns.rcode.to_text(response.rcode()), [str(record) for records in response.answer for record in records]


def test_a_name_is_found_whatever_its_case() -> None:
    assert ask("CART.Default.svc.cluster.local.") == ("NOERROR", ["10.80.0.7"])


def test_a_name_without_records_of_a_type_exists_and_an_unknown_one_does_not() -> None:
    assert ask(CART_NAME, "AAAA") == ("NOERROR", [])
    assert ask("default.svc.cluster.local") == ("NOERROR", [])
    assert ask("basket.default.svc.cluster.local") == ("NXDOMAIN", [])


def test_a_service_record_has_the_port_and_the_name_of_the_service() -> None:
    assert ask(f"_http._tcp.{CART_NAME}", "SRV") == ("NOERROR", [f"0 100 8080 {CART_NAME}."])


def test_an_alias_leads_to_addresses_in_the_domain() -> None:
    assert ask("alias.default.svc.cluster.local") == ("NOERROR", [f"{CART_NAME}.", "10.80.0.7"])
    assert ask("outside.default.svc.cluster.local") == ("NOERROR", ["example.org."])


def test_an_alias_of_itself_ends() -> None:
    assert ask("loop.default.svc.cluster.local")[0] == "NOERROR"


def test_names_outside_the_domain_are_not_answered_here() -> None:
    assert answer(dns.message.make_query("example.org", "A"), RECORDS) is None
    assert answer(dns.message.make_query("notcluster.local", "A"), RECORDS) is None


async def test_a_resolver_without_forwarders_fails_for_names_outside_and_ignores_what_is_no_query() -> None:
    resolver = Resolver(MemoryStore(), "cluster.local", tuple)
    response = await resolver.resolve(dns.message.make_query("example.org", "A").to_wire())
    assert response
    assert response.rcode() == dns.rcode.SERVFAIL
    assert await resolver.resolve(b"no message") is None
    assert await resolver.resolve(dns.message.make_response(dns.message.make_query("a.b", "A")).to_wire()) is None


def test_the_resolvers_of_the_machine_are_read_from_its_file(tmp_path) -> None:
    path = tmp_path / "resolv.conf"
    assert machine_resolvers(path) == []
    path.write_text("# comment\nsearch example.org\nnameserver 192.0.2.1\nnameserver 127.0.0.53\n")
    assert machine_resolvers(path) == ["192.0.2.1", "127.0.0.53"]


async def test_an_error_is_an_answer_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def no_resolvers() -> list[str]:
        raise RuntimeError("the file is damaged")

    resolver = Resolver(MemoryStore(), "cluster.local", no_resolvers)
    for _ in range(2):
        response = await resolver.resolve(OUTSIDE_QUERY)
        assert response
        assert response.rcode() == dns.rcode.SERVFAIL
    assert len(caplog.messages) == 1


async def test_a_resolver_of_the_machine_that_is_no_address_is_passed_over() -> None:
    response = await Resolver(MemoryStore(), "cluster.local", lambda: ["no address"]).resolve(OUTSIDE_QUERY)
    assert response
    assert response.rcode() == dns.rcode.SERVFAIL


async def test_queries_above_the_limit_of_forwards_fail_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = asyncio.Event()

    async def silent(*_: object, **__: object) -> None:
        waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(dns.asyncquery, "udp_with_fallback", silent)
    monkeypatch.setattr(resolver_module, "_MOST_FORWARDS", 1)
    resolver = Resolver(MemoryStore(), "cluster.local", lambda: ["192.0.2.1"])
    first = asyncio.create_task(resolver.resolve(OUTSIDE_QUERY))
    await waiting.wait()
    response = await resolver.resolve(OUTSIDE_QUERY)
    first.cancel()
    assert response
    assert response.rcode() == dns.rcode.SERVFAIL


async def test_tcp_connections_above_the_limit_and_idle_ones_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver_module, "_MOST_STREAMS", 1)
    monkeypatch.setattr(resolver_module, "_IDLE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with Resolver(MemoryStore(), "cluster.local", tuple).serving("127.0.0.1", port):
        idle, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        refused, refused_writer = await asyncio.open_connection("127.0.0.1", port)
        assert await refused.read() == b""
        assert not idle.at_eof()
        assert await idle.read() == b""
        idle_writer.close()
        refused_writer.close()


async def test_a_port_that_another_program_has_is_an_error_with_the_ways_out() -> None:
    resolver = Resolver(MemoryStore(), "cluster.local", tuple)
    message = r"Address already in use; stop the program .* or use --network host"
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(HeadgateError, match=message):
        await resolver.serving("127.0.0.1", other.getsockname()[1]).__aenter__()
