"""Which API paths the page may request."""

import pytest

from headgate.dashboard.api_paths import api_target


@pytest.mark.parametrize(
    "path",
    [
        "/apis/inspect.headgate.dev/v1beta1/proxies",
        "/apis/inspect.headgate.dev/v1beta1/namespaces/shop/trafficgraphs/services",
        "/apis/split.smi-spec.io/v1alpha4/namespaces/shop/trafficsplits/website/status",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/api/v1/namespaces/proxy",
        "/api/v1/namespaces/secrets/pods/proxy/log",
        "/api/v1/namespaces/shop/services/secrets",
    ],
)
def test_objects_and_answers_pass(path: str) -> None:
    assert api_target(path, "") == path
    assert api_target(path, "watch=true&a=%2F") == f"{path}?watch=true&a=%2F"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/version",
        "/metrics",
        "/openapi/v2",
        "/logs/kube-apiserver.log",
        "/api/v1/secrets",
        "/api/v1/namespaces/shop/secrets/token",
        "/api/v1/namespaces/shop/s%65crets",
        "/api/v1/namespaces/shop/pods/website/proxy/index.html",
        "/api/v1/namespaces/shop/pods/website/%70roxy/index.html",
        "/api/v1/namespaces/shop/services/website:80/proxy",
        "/api/v1/nodes/a/proxy/logs",
        "/api/v1/proxy/namespaces/shop/pods/website",
        "/api/v1/watch/secrets",
        "/api/v1/namespaces/shop/pods/website/exec",
        "/api/v1/namespaces/shop/pods/website/attach",
        "/api/v1/namespaces/shop/pods/website/portforward",
        "/api/v1/namespaces/shop/serviceaccounts/default/token",
        "/api/v1/namespaces/shop/../../../version",
        "/api/v1/namespaces/shop/%2e%2e/%2e%2e/secrets",
        "/api/v1/namespaces/shop%2Fsecrets",
        "/api/v1//secrets",
        "//evil.example/api/v1/pods",
    ],
)
def test_foreign_content_secrets_and_sessions_do_not_pass(path: str) -> None:
    assert api_target(path, "") is None
