"""DNS records of Services, as the specification of Kubernetes' DNS has them."""

from tests.make.objects import endpoint, endpoint_slice, obj, port, service

from headgate.standalone.network.records import ServiceTarget, records_of

DOMAIN = "cluster.local"
CART = service("cart", port(8080, "http"), namespace="shop", clusterIP="10.80.0.7")
DB = service("db", port(5432, "sql"), namespace="shop", clusterIP="None")
NAMED = {**endpoint("10.80.128.4", namespace="shop"), "hostname": "db-0"}
OTHER = endpoint("10.80.128.5", namespace="shop")
STARTING = endpoint("10.80.128.6", namespace="shop", ready=False)
SLICE = endpoint_slice("db", [NAMED, OTHER, STARTING], {"sql": 5432}, namespace="shop")
ELSEWHERE = obj("Service", "pay", namespace="shop", spec={"type": "ExternalName", "externalName": "Pay.Example.org."})
RECORDS = records_of([CART, DB, ELSEWHERE], [SLICE], DOMAIN)


def test_a_service_has_its_cluster_ip_and_a_headless_one_its_ready_endpoints() -> None:
    assert RECORDS.addresses["cart.shop.svc.cluster.local"] == ("10.80.0.7",)
    assert RECORDS.addresses["db.shop.svc.cluster.local"] == ("10.80.128.4", "10.80.128.5")


def test_endpoints_of_a_headless_service_have_names_by_host_name_or_by_address() -> None:
    assert RECORDS.addresses["db-0.db.shop.svc.cluster.local"] == ("10.80.128.4",)
    assert RECORDS.addresses["10-80-128-5.db.shop.svc.cluster.local"] == ("10.80.128.5",)


def test_named_ports_have_service_records() -> None:
    assert RECORDS.services["_http._tcp.cart.shop.svc.cluster.local"] == (
        ServiceTarget(8080, "cart.shop.svc.cluster.local"),
    )
    assert [target.name for target in RECORDS.services["_sql._tcp.db.shop.svc.cluster.local"]] == [
        "db-0.db.shop.svc.cluster.local",
        "10-80-128-5.db.shop.svc.cluster.local",
    ]


def test_an_external_name_is_an_alias_in_lower_case() -> None:
    assert RECORDS.aliases == {"pay.shop.svc.cluster.local": "pay.example.org"}


def test_the_names_between_a_record_and_the_domain_exist() -> None:
    assert {"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"} <= RECORDS.names
    assert "other.svc.cluster.local" not in RECORDS.names


def test_ports_without_a_number_and_addresses_and_names_that_dns_cannot_have_are_left_out() -> None:
    six = endpoint_slice("db", [endpoint("fd00::4", namespace="shop")], {"sql": 5432}, namespace="shop")
    domain_name = endpoint_slice("db", [endpoint("db.example.org", namespace="shop")], {"sql": 5432}, namespace="shop")
    long = {**endpoint("10.80.128.7", namespace="shop"), "hostname": "d" * 64}
    all_ports = {**endpoint_slice("db", [NAMED, long], {"sql": 1}, namespace="shop"), "ports": [{"name": "sql"}]}
    alias = obj("Service", "far", namespace="shop", spec={"type": "ExternalName", "externalName": f"{'d' * 64}.org"})
    records = records_of([DB, alias], [six, domain_name, all_ports], DOMAIN)
    assert records.addresses == {
        "db.shop.svc.cluster.local": ("10.80.128.4",),
        "db-0.db.shop.svc.cluster.local": ("10.80.128.4",),
    }
    assert not records.services
    assert not records.aliases
