"""Choose the tests of `make test-fast`, `make test` and `make test-nightly`.

Fast tests start no program and take at most about a second of processor time: tests of properties, and those of the lists
below, are left out. The lists stay true, because a fast test that starts a program fails, in `make test` too, and so does an
entry that no test has. A test has the marker `nightly` when it can't be made steady on a busy machine, or has a
cluster alone for minutes.
"""

import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

DIRECTORIES = (
    "tests/chaos",
    "tests/cluster",
    "tests/differential",
    "tests/docs",
    "tests/e2e",
    "tests/netns",
    "tests/pods",
    "tests/properties",
)
"""Directories that start Envoy, an API server or a cluster, or compute for minutes: their modules are not even imported."""
PROGRAMS = (
    "tests/api/inspect/test_watch_kubectl.py",
    "tests/api/metrics/test_metrics_kubectl.py",
    "tests/api/test_hostile_clients.py",
    "tests/cli/test_ca.py",
    "tests/cli/test_check.py::test_check_of_the_running_mesh_has_the_findings_of_the_host",
    "tests/cli/test_check.py::test_check_without_files_checks_the_running_mesh",
    "tests/cli/test_closed_output.py",
    "tests/cli/test_commands.py::test_a_headgate_that_runs_with_a_state_directory_in_the_given_one_is_named",
    "tests/cli/test_commands.py::test_processes_that_a_killed_headgate_left_are_named",
    "tests/cli/test_commands.py::test_version_shows_headgate_and_envoy_when_nothing_runs",
    "tests/cli/test_completion.py",
    "tests/cli/test_explain.py::test_each_header_of_the_request_reaches_the_running_headgate",
    "tests/cli/test_explain.py::test_explain_reports_the_same_errors_for_the_running_headgate_as_for_files",
    "tests/cli/test_explain.py::test_explain_without_files_uses_the_running_headgate",
    "tests/cli/test_explain.py::test_the_running_headgate_resolves_a_short_host_name_in_the_namespace_of_n_or_of_the_context",
    "tests/cli/test_explain_pod.py",
    "tests/cli/test_generate.py::test_a_mesh_without_traffic_says_so",
    "tests/cli/test_imports.py",
    "tests/cli/test_main.py",
    "tests/cli/test_plan.py::test_a_plan_of_config_maps_needs_no_permission_to_get_them",
    "tests/cli/test_plan.py::test_a_running_headgate_plans_a_change_and_keeps_its_objects",
    "tests/cli/test_plan.py::test_a_running_headgate_predicts_the_endpoints_of_a_new_service",
    "tests/cli/test_render.py",
    "tests/cli/test_render_haproxy.py",
    "tests/cli/test_rendered_files.py",
    "tests/cli/test_rollout.py",
    "tests/cli/test_run.py",
    "tests/cli/test_senders.py",
    "tests/cli/test_sidecar.py",
    "tests/cli/test_status.py",
    "tests/cli/test_try_command.py",
    "tests/cli/test_wait.py",
    "tests/cli/traffic/test_pictures.py::test_graphviz_reads_the_dot_output",
    "tests/dashboard/test_access_rules.py",
    "tests/dashboard/test_explain_writes.py",
    "tests/dashboard/test_live_requests.py",
    "tests/dashboard/test_page.py",
    "tests/dashboard/test_page_history.py",
    "tests/dashboard/test_page_loading.py",
    "tests/dashboard/test_page_plots.py",
    "tests/dashboard/test_page_restart.py",
    "tests/dashboard/test_page_views.py",
    "tests/dashboard/test_page_writes.py",
    "tests/dashboard/test_page_yaml.py",
    "tests/envoy/test_draw.py",
    "tests/envoy/test_ejection.py",
    "tests/envoy/test_external_backends.py",
    "tests/envoy/test_external_names.py",
    "tests/envoy/test_gateway_hosts.py",
    "tests/envoy/test_gateway_traffic.py",
    "tests/envoy/test_golden_cases.py",
    "tests/envoy/test_http.py",
    "tests/envoy/test_http2_conformance.py",
    "tests/envoy/test_http2_endings.py",
    "tests/envoy/test_idle_streams.py",
    "tests/envoy/test_inbound_traffic.py",
    "tests/envoy/test_long_streams.py",
    "tests/envoy/test_outbound_traffic.py",
    "tests/envoy/test_pb.py::test_blob_and_stubs_match_the_installed_envoy",
    "tests/envoy/test_pod_addresses.py",
    "tests/envoy/test_pod_names.py",
    "tests/envoy/test_probes.py",
    "tests/envoy/test_request_counters.py",
    "tests/envoy/test_reserved_headers.py",
    "tests/envoy/test_resilience.py",
    "tests/envoy/test_retry_budget.py",
    "tests/envoy/test_resets.py",
    "tests/envoy/test_response_sizes.py",
    "tests/envoy/test_route_traffic.py",
    "tests/envoy/test_server_certificates.py",
    "tests/envoy/test_server_names.py",
    "tests/envoy/test_traces.py::test_routes_see_the_id_that_the_proxy_chooses_and_explain_says_so",
    "tests/envoy/test_traffic_counts.py",
    "tests/envoy/test_tunnels.py",
    "tests/envoy/test_udp_proxy.py",
    "tests/identity/test_authority.py::test_an_rsa_authority_signs_certificates",
    "tests/identity/test_authority.py::test_openssl_accepts_a_certificate_for_clients_and_for_servers",
    "tests/identity/test_authority.py::test_openssl_rejects_a_certificate_of_another_trust_domain",
    "tests/identity/test_authority.py::test_openssl_rejects_an_intermediate_signed_by_a_root",
    "tests/identity/test_authority.py::test_openssl_verifies_a_signing_request",
    "tests/identity/test_envoy.py",
    "tests/identity/test_pem.py",
    "tests/identity/test_rotation.py::test_any_two_proxies_accept_each_other_at_every_moment",
    "tests/kubernetes/install/test_chart.py",
    "tests/kubernetes/test_cert_manager.py::test_a_request_is_created_answered_and_deleted",
    "tests/cli/traffic/test_completion.py",
    "tests/cli/traffic/test_kubectl.py",
    "tests/dashboard/test_graph.py",
    "tests/dashboard/test_graph_modules.py",
    "tests/proxy_programs/test_files.py",
    "tests/redirection/test_iptables.py",
    "tests/render/haproxy/test_conditions.py",
    "tests/render/haproxy/test_configuration.py",
    "tests/render/haproxy/test_reload.py",
    "tests/render/haproxy/test_shares.py",
    "tests/render/nginx/test_configuration.py",
    "tests/render/nginx/test_golden.py",
    "tests/render/nginx/test_regexes.py",
    "tests/render/test_bound_port.py",
    "tests/render/test_client_certificates.py",
    "tests/manifests/test_charts.py::test_the_chart_of_helm_create_is_stored_with_every_option",
    "tests/manifests/test_generated.py",
    "tests/standalone/apiserver/test_access_kinds.py",
    "tests/standalone/apiserver/test_canary_kind.py",
    "tests/standalone/apiserver/test_further_kinds.py",
    "tests/standalone/apiserver/test_health.py",
    "tests/standalone/apiserver/test_kubectl.py",
    "tests/standalone/apiserver/test_kubectl_apply.py",
    "tests/standalone/apiserver/test_sessions.py",
    "tests/standalone/network/test_machine_network.py",
    "tests/standalone/network/test_portal.py",
    "tests/standalone/pods",
    "tests/standalone/test_isolation.py",
    "tests/standalone/proxies/test_envoy_process.py",
    "tests/standalone/proxies/test_nginx_process.py",
    "tests/standalone/store/test_damaged_stores.py::test_a_locked_store_names_the_process_that_uses_it",
    "tests/standalone/store/test_sqlite.py::test_acknowledged_writes_survive_a_kill_9_at_any_moment",
    "tests/standalone/test_examples.py",
    "tests/standalone/test_machine_node.py",
    "tests/standalone/test_processes.py",
    "tests/standalone/test_runtime_directory.py::test_the_directory_of_a_killed_headgate_is_removed_after_its_envoy_has_ended",
    "tests/standalone/test_runtime_info.py",
    "tests/standalone/test_supervisor.py",
    "tests/standalone/test_usage.py",
    "tests/telemetry/prometheus/test_rules.py::test_promtool_accepts_the_rules_and_their_tests",
    "tests/telemetry/prometheus/test_text.py::test_promtool_accepts_the_text",
    "tests/test_inotify.py::test_a_program_finds_out",
    "tests/xds/test_envoy.py",
    "tests/xds/test_hostile_calls.py",
)
"""The beginnings of IDs of tests that start a program."""
LONG = (
    "tests/cli/test_check.py::test_compile_prints_the_configuration_of_each_proxy",
    "tests/cli/test_check.py::test_compile_shows_the_weights_of_a_split",
    "tests/cli/test_mesh_options.py::test_every_option",
    "tests/cli/test_mesh_options.py::test_install",
    "tests/cli/test_planned_changes.py",
    "tests/compiler/gateway_api/test_expansion.py::test_a_single_root_can_have_any_number_of_matches",
    "tests/envoy/test_cost.py",
    "tests/identity/test_credentials.py::test_renewals_of_proxies_are_spread_and_the_time_of_each_proxy_is_constant",
    "tests/identity/test_credentials.py::test_requests_succeed_again",
    "tests/kubernetes/test_rate_limits.py::test_a_burst_of_status_writes",
    "tests/kubernetes/test_token_reviews.py::test_the_number_of_remembered_rejections",
    "tests/plane/test_history_recorder.py::test_the_log_in_memory_has_the_limits_of_the_storage",
    "tests/plane/test_response_sizes.py::test_equal_sizes_are_seldom_called_different",
    "tests/resources/test_kind_tables.py::test_no_module_outside_the_rooms_has_a_table_keyed_by_kinds",
    "tests/rollout/test_controller.py::test_without_requests_nothing_is_written",
    "tests/standalone/apiserver/test_http.py::test_a_list_returns_five_thousand_objects",
    "tests/standalone/apiserver/test_patches.py::test_the_bytes_that_a_json_patch_copies_are_limited",
    "tests/standalone/test_address_pool.py::test_pods_can_use_all_addresses",
    "tests/statistics/test_betting.py::test_a_candidate_that_turns_bad_after_a_day",
    "tests/statistics/test_clusters.py::test_incidents_that_cross_windows_are_no_evidence",
    "tests/statistics/test_intervals.py",
    "tests/statistics/test_rollouts.py",
    "tests/xds/test_memory.py",
    "tests/xds/test_schedule.py",
    "tests/xds/test_server.py::test_thousands_of_streams",
)
"""The beginnings of IDs of tests that compute for more than a second."""
STARTS = frozenset({"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
"""The audit events of starting a program."""
NIGHTLY = 10
"""How many tests may be nightly."""

_fast: frozenset[str] = frozenset()
_running = ""


class ProgramStartedError(Exception):
    """A fast test started a program."""


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave only the tests that the options of the command line select, and remember which are fast."""
    global _fast  # noqa: PLW0603 - an audit hook has no other state
    nightly, slow = _nightly(items), _slow(items, whole=config.args_source is not pytest.Config.ArgsSource.ARGS)
    _fast = frozenset(item.nodeid for item in items if item not in slow)
    left_out = set(items) - nightly if config.getoption("--nightly") else set(nightly)
    if config.getoption("--fast"):
        left_out |= slow
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _nightly(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the nightly tests; raise a UsageError if one has no reason, or if they are too many."""
    marked = {item: marker for item in items if (marker := item.get_closest_marker("nightly"))}
    for item, marker in marked.items():
        if not marker.kwargs.get("reason"):
            raise pytest.UsageError(f'{item.nodeid}: give the reason, as in @pytest.mark.nightly(reason="...")')
    tests = {item.nodeid.partition("[")[0] for item in marked}
    if len(tests) > NIGHTLY:
        raise pytest.UsageError(f"{len(tests)} tests are nightly, {NIGHTLY} may be: make one of them steady")
    return set(marked)


def _slow(items: Iterable[pytest.Item], *, whole: bool) -> set[pytest.Item]:
    """Return the tests that aren't fast; raise a UsageError for an entry of the lists that no test of all has."""
    entries = PROGRAMS + LONG
    if whole:
        ids = sorted(item.nodeid for item in items)
        # The first ID that is not below an entry begins with it if any ID does.
        first = {entry: ids[at] if (at := bisect_left(ids, entry)) < len(ids) else "" for entry in entries}
        if unused := [entry for entry, nodeid in first.items() if not nodeid.startswith(entry)]:
            raise pytest.UsageError(
                f"tests/selection.py: no test begins with {', '.join(unused)}; correct or remove it"
            )
    beginnings = (*entries, *(f"{directory}/" for directory in DIRECTORIES))
    return {item for item in items if item.nodeid.startswith(beginnings) or _draws_examples(item)}


def _draws_examples(item: pytest.Item) -> bool:
    """Return whether Hypothesis runs a test, with 100 examples by default."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def guard() -> None:
    """Make each start of a program by a fast test an error, in this process and from now on."""
    sys.addaudithook(_refuse)


def watch(nodeid: str) -> None:
    """Remember which test runs, if it is a fast one; with an empty ID, none does."""
    global _running  # noqa: PLW0603 - an audit hook has no other state
    _running = nodeid if nodeid in _fast else ""


def _refuse(event: str, arguments: Sequence[Any]) -> None:
    if _running and event in STARTS:
        program = str(arguments[0]) if arguments else event
        raise ProgramStartedError(f"{_running} starts {program}: add it to PROGRAMS in tests/selection.py")
