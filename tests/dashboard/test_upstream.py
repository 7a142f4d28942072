"""Requests of the dashboard to an API server that rejects expired credentials or does not answer."""

from tests.dashboard.running_dashboard import running_dashboard

PODS = "/api/v1/namespaces/shop/pods"


async def test_an_expired_token_is_read_again() -> None:
    async with running_dashboard("first", "second") as dashboard:
        dashboard.api.token = "first"
        assert (await dashboard.get(PODS)).status == 200
        dashboard.api.token = "second"
        assert (await dashboard.get(PODS)).status == 200
        assert [request.headers["authorization"] for request in dashboard.api.requests] == [
            "Bearer first",
            "Bearer first",
            "Bearer second",
        ]


async def test_the_api_server_knows_the_dashboard_as_the_writer() -> None:
    """It is the field manager in `headgate history`, and on a cluster in `metadata.managedFields`."""
    async with running_dashboard("token") as dashboard:
        dashboard.api.token = "token"
        assert (await dashboard.get(PODS)).status == 200
        assert [request.headers["user-agent"] for request in dashboard.api.requests] == ["headgate-dashboard"]


async def test_a_token_that_stays_invalid_is_the_answer() -> None:
    async with running_dashboard("wrong") as dashboard:
        dashboard.api.token = "right"
        assert (await dashboard.get(PODS)).status == 401
