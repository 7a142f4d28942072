"""Tests of a proxy's bootstrap."""

import json

import msgspec
import pytest
import re2
from google.protobuf import json_format

from headgate.envoy import descriptors, pb
from headgate.envoy.bootstrap import XdsAddress, bootstrap, roots_source, token_source
from headgate.resources.regexes import LARGEST_PROGRAM


def started():
    text = bootstrap(node_id="gateway", xds_socket="/run/xds.sock", admin_socket="/run/admin.sock")
    return json_format.ParseDict(json.loads(text), pb.Bootstrap(), descriptor_pool=descriptors.pool())


def test_the_bootstrap_has_the_node_id_and_requests_all_resources_over_ads():
    message = started()
    assert message.node.id == "gateway"
    dynamic = message.dynamic_resources
    assert dynamic.lds_config.WhichOneof("config_source_specifier") == "ads"
    assert dynamic.cds_config.WhichOneof("config_source_specifier") == "ads"
    assert dynamic.ads_config.api_type == pb.ApiConfigSource.ApiType.DELTA_GRPC
    assert not message.static_resources.listeners


def test_the_xds_cluster_connects_to_the_unix_socket():
    (cluster,) = started().static_resources.clusters
    (service,) = started().dynamic_resources.ads_config.grpc_services
    assert service.envoy_grpc.cluster_name == cluster.name
    endpoint = cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint
    assert endpoint.address.pipe.path == "/run/xds.sock"


def test_a_proxy_reconnects_within_seconds():
    """Envoy's default back-off is up to 30 s."""
    (service,) = started().dynamic_resources.ads_config.grpc_services
    assert service.envoy_grpc.retry_policy.retry_back_off.max_interval.seconds <= 5


def test_only_the_proxys_user_can_open_the_admin_socket():
    pipe = started().admin.address.pipe
    assert (pipe.path, pipe.mode) == ("/run/admin.sock", 0o600)


def test_envoy_accepts_every_regular_expression_that_an_object_may_have():
    layer, _ = started().layered_runtime.layers
    assert layer.static_layer.fields["re2.max_program_size.error_level"].number_value > LARGEST_PROGRAM


def test_equal_arguments_give_equal_bytes_so_that_envoy_is_adopted():
    text = bootstrap(node_id="gateway", xds_socket="/run/xds.sock", admin_socket="/run/admin.sock").decode()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True)


XDS = XdsAddress(host="headgate.headgate-system.svc", port=15010, name="xds.headgate", roots="/etc/headgate/roots.json")


def parsed(text, message):
    return json_format.ParseDict(json.loads(text), message, descriptor_pool=descriptors.pool())


def sidecar_bootstrap(**where):
    text = bootstrap(node_id="sidecar/default/web-1", admin_socket="/run/admin.sock", **where)
    return parsed(text, pb.Bootstrap())


def unpacked(any_message, message):
    assert any_message.type_url == pb.type_url(message)
    return type(message).FromString(any_message.value)


def http_options(started_with):
    (cluster,) = started_with.static_resources.clusters
    (options,) = cluster.typed_extension_protocol_options.values()
    return unpacked(options, pb.HttpProtocolOptions())


def test_the_token_is_injected_from_a_file_and_is_not_in_the_bootstrap():
    injector, last = http_options(
        sidecar_bootstrap(xds_socket="/run/xds.sock", token="/run/hg/token.json")
    ).http_filters
    assert last.name == "envoy.filters.http.upstream_codec"
    config = unpacked(injector.typed_config, pb.CredentialInjector())
    credential = unpacked(config.credential.typed_config, pb.GenericCredential())
    assert (credential.header, credential.header_value_prefix) == ("authorization", "Bearer ")
    source = credential.credential.sds_config.path_config_source
    assert (source.path, source.watched_directory.path) == ("/run/hg/token.json", "/run/hg")
    secret = unpacked(parsed(token_source("/run/tokens/token"), pb.DiscoveryResponse()).resources[0], pb.Secret())
    assert secret.name == credential.credential.name
    content = secret.generic_secret.secret
    assert (content.filename, content.watched_directory.path) == ("/run/tokens/token", "/run/tokens")


def test_without_a_token_there_is_no_credential_injector():
    assert not http_options(started()).http_filters


def test_over_tcp_headgate_must_present_a_certificate_for_its_name():
    (cluster,) = sidecar_bootstrap(xds=XDS).static_resources.clusters
    assert cluster.type == pb.Cluster.DiscoveryType.STRICT_DNS
    address = cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address
    assert (address.address, address.port_value) == (XDS.host, XDS.port)
    tls = unpacked(cluster.transport_socket.typed_config, pb.UpstreamTlsContext())
    assert tls.sni == XDS.name
    params = tls.common_tls_context.tls_params
    assert params.tls_minimum_protocol_version == params.tls_maximum_protocol_version == 4  # TLS 1.3
    validation = tls.common_tls_context.combined_validation_context
    (name,) = validation.default_validation_context.match_typed_subject_alt_names
    assert (name.san_type, name.matcher.exact) == (pb.SubjectAltNameMatcher.SanType.DNS, XDS.name)
    roots = validation.validation_context_sds_secret_config
    assert roots.sds_config.path_config_source.path == XDS.roots
    secret = unpacked(parsed(roots_source("/etc/mesh/roots.pem"), pb.DiscoveryResponse()).resources[0], pb.Secret())
    assert secret.name == roots.name
    assert secret.validation_context.trusted_ca.filename == "/etc/mesh/roots.pem"
    assert secret.validation_context.watched_directory.path == "/etc/mesh"


@pytest.mark.parametrize("host", ["10.0.0.1", "fd00::1"])
def test_an_ip_address_is_not_resolved_by_dns(host):
    (cluster,) = sidecar_bootstrap(xds=msgspec.structs.replace(XDS, host=host)).static_resources.clusters
    assert cluster.type == pb.Cluster.DiscoveryType.STATIC


@pytest.mark.parametrize("where", [{}, {"xds_socket": "/run/xds.sock", "xds": XDS}])
def test_the_bootstrap_requires_exactly_one_address_of_headgate(where):
    with pytest.raises(ValueError, match="one of xds_socket and xds"):
        sidecar_bootstrap(**where)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("http.mesh.rbac.denied", True),
        ("inbound.rbac.allowed", True),
        ("listener.0.0.0.0_15006.ssl.handshake", True),
        ("listener.0.0.0.0_15006.ssl.fail_verify_error", True),
        ("listener.0.0.0.0_15006.ssl.ciphers.TLS_AES_128_GCM_SHA256", False),
        ("cluster.xds.ssl.fail_verify_san", True),
        ("cluster.outbound/default/web/80.ssl.handshake", False),  # each cluster of the mesh would have this counter
        ("cluster.outbound/default/web/80.upstream_rq_total", True),
        ("cluster.outbound/default/web/80.membership_healthy", False),
        ("cluster.probes/app/readiness.membership_healthy", True),
        ("cluster.probes/app/readiness.membership_total", True),
        ("cluster.outbound/default/web/80.upstream_cx_total", False),
    ],
)
def test_inbound_counters_are_kept_and_counters_of_clusters_are_dropped(name, kept):
    assert (
        any(matches(pattern, name) for pattern in started().stats_config.stats_matcher.inclusion_list.patterns) == kept
    )


def matches(pattern, name):
    kind = pattern.WhichOneof("match_pattern")
    if kind == "safe_regex":
        return re2.fullmatch(pattern.safe_regex.regex, name) is not None
    test = {"prefix": str.startswith, "suffix": str.endswith, "contains": str.__contains__}[kind]
    return test(name, getattr(pattern, kind))


@pytest.mark.parametrize("where", [{"xds_socket": "/run/xds.sock"}, {"xds": XDS}])
def test_a_sidecars_bootstrap_is_deterministic(where):
    texts = {bootstrap(node_id="sidecar/default/web-1", admin_socket="/a", token="/t", **where) for _ in range(20)}
    (text,) = texts
    assert text.decode() == json.dumps(json.loads(text), indent=2, sort_keys=True)
