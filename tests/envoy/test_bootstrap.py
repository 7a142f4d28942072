"""What a proxy is started with."""

import json

from google.protobuf import json_format

from headgate.envoy import messages, pb
from headgate.envoy.bootstrap import bootstrap
from headgate.resources.regexes import LARGEST_PROGRAM


def started():
    text = bootstrap(node_id="gateway", xds_socket="/run/xds.sock", admin_socket="/run/admin.sock")
    return json_format.ParseDict(json.loads(text), pb.Bootstrap(), descriptor_pool=messages.pool())


def test_a_proxy_says_who_it_is_and_asks_headgate_for_everything():
    message = started()
    assert message.node.id == "gateway"
    dynamic = message.dynamic_resources
    assert dynamic.lds_config.WhichOneof("config_source_specifier") == "ads"
    assert dynamic.cds_config.WhichOneof("config_source_specifier") == "ads"
    assert dynamic.ads_config.api_type == pb.ApiConfigSource.ApiType.DELTA_GRPC
    assert not message.static_resources.listeners


def test_it_finds_headgate_on_a_socket_of_its_own_user():
    (cluster,) = started().static_resources.clusters
    (service,) = started().dynamic_resources.ads_config.grpc_services
    assert service.envoy_grpc.cluster_name == cluster.name
    endpoint = cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint
    assert endpoint.address.pipe.path == "/run/xds.sock"


def test_only_its_user_can_open_the_admin_socket():
    pipe = started().admin.address.pipe
    assert (pipe.path, pipe.mode) == ("/run/admin.sock", 0o600)


def test_it_takes_every_expression_that_an_object_may_have():
    (layer,) = started().layered_runtime.layers
    assert layer.static_layer.fields["re2.max_program_size.error_level"].number_value > LARGEST_PROGRAM


def test_it_is_the_same_text_each_time_or_no_envoy_could_be_adopted():
    text = bootstrap(node_id="gateway", xds_socket="/run/xds.sock", admin_socket="/run/admin.sock").decode()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True)
