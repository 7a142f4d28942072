"""A user's OpenTelemetry collector: every proxy reports to the collector and to headgate."""

from pathlib import Path

import pytest
from tests.e2e.collector import collector
from tests.e2e.running_mesh import mesh_in_a_new_directory
from tests.e2e.shop import PLAN, shop_in
from tests.waiting import until


def test_a_collector_gets_the_same_counts_as_headgate(tmp_path: Path) -> None:
    """R97: each proxy reports cumulative values."""
    with collector() as (address, found), shop_in(tmp_path, "--otlp-collector", address) as shop:
        shop.send(PLAN)
        shop.wait_for_agreement()
        until(lambda: sum(found.requests().values()) == shop.truth.total(), f"{shop.truth.total()}")
        sent = {node.split("/")[-1].partition("-")[0]: count for node, count in found.requests().items() if count}
        assert sent == {client: sum(paths.values()) for client, paths in PLAN.items()}
        assert found.services == {"headgate-proxy"}


def test_headgate_counts_requests_while_the_collector_is_unreachable(tmp_path: Path) -> None:
    with shop_in(tmp_path, "--otlp-collector", "127.0.0.1:9") as shop:
        shop.send(PLAN)
        shop.wait_for_agreement()


@pytest.mark.parametrize("address", ["x", "http://127.0.0.1:4317", "127.0.0.1:0", ":4317"])
def test_up_rejects_an_invalid_collector_address(address: str) -> None:
    with (
        pytest.raises(AssertionError, match="write HOST:PORT without http://, for example"),
        mesh_in_a_new_directory("--otlp-collector", address),
    ):
        pass
