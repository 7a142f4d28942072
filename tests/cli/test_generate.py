"""`headgate generate traffictargets`: its output, and what it says about mistakes."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.cli.conftest import ServedMesh
from tests.make import objects
from tests.processes import Ran
from typer.testing import CliRunner

from headgate.cli.app import app
from headgate.cli.generate import KEPT_H
from headgate.resources.call_records import CallRecord, CallRecordList
from headgate.resources.decode import check
from headgate.resources.inspect import ObjectName
from headgate.resources.meta import timestamp

NOW = timestamp(time.time())
Run = Callable[..., Ran]


def call(destination: str, caller: str, *, plaintext: str = "", port: int = 8080) -> CallRecord:
    namespace, name = destination.split("/")
    return CallRecord(
        metadata=ObjectName(namespace=namespace, name=name),
        caller=caller,
        plaintext_caller=plaintext,
        port=port,
        protocol="HTTP",
        calls=3,
        first_call_time=NOW,
        last_call_time=NOW,
    )


CALLS = (
    call("shop/web", "shop/buyer"),
    call("shop/web", "shop/thief"),
    call("blue/store", "shop/web"),
    call("blue/old", "", plaintext="192.0.2.1"),
)


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    path = tmp_path / "calls.json"
    path.write_bytes(msgspec.json.encode(CallRecordList(items=CALLS)))
    return str(path)


def documents(text: str) -> Sequence[Mapping[str, Any]]:
    found = list(yaml.safe_load_all(text))
    for obj in found:
        check(obj)
    return found


def sources(ran: Ran) -> Mapping[str, Sequence[str]]:
    return {
        obj["metadata"]["name"]: [source["name"] for source in obj["spec"]["sources"]]
        for obj in documents(ran.out)
        if obj["kind"] == "TrafficTarget"
    }


def test_the_rules_allow_recorded_callers_and_comments_say_what_they_refuse(run: Run, recorded: str) -> None:
    ran = run("generate", "traffictargets", "--from-traffic", recorded, "-n", "shop", "--exclude", "shop/thief")
    assert ran.code == 0
    assert sources(ran) == {"web-http-8080": ["buyer"]}
    assert "# shop/web port 8080 (HTTP)\n# allows shop/buyer (3 calls, last " in ran.out
    assert "# would newly refuse shop/thief (3 calls, last " in ran.out
    assert "headgate.dev/mode: enforce" in ran.out  # else an apply keeps audit mode
    assert "1 TrafficTarget allow 3 recorded calls" not in ran.err
    assert "1 TrafficTarget allows 3 recorded calls" in ran.err
    ran = run("generate", "traffictargets", "--from-traffic", recorded, "-n", "shop", "--audit")
    assert sources(ran) == {"web-http-8080": ["buyer", "thief"]}
    assert "# would newly refuse none of the recorded calls\n" in ran.out
    assert all(
        obj["metadata"]["annotations"] == {"headgate.dev/mode": "audit"}
        for obj in documents(ran.out)
        if obj["kind"] == "TrafficTarget"
    )


def test_accounts_with_plaintext_callers_are_left_out_with_the_way_out(run: Run, recorded: str) -> None:
    ran = run("generate", "traffictargets", "--from-traffic", recorded, "-A")
    assert sources(ran) == {"store-http-8080": ["web"], "web-http-8080": ["buyer", "thief"]}
    assert "no rules for ServiceAccount blue/old" in ran.err
    assert "192.0.2.1 sent 3 to port 8080 without identity" in ran.err


def test_a_directory_gets_a_file_for_each_namespace_which_is_not_overwritten(
    run: Run, recorded: str, tmp_path: Path
) -> None:
    arguments = (
        "generate",
        "traffictargets",
        "--from-traffic",
        recorded,
        "-A",
        "--output-dir",
        str(tmp_path / "rules"),
    )
    assert run(*arguments).code == 0
    assert sorted(path.name for path in (tmp_path / "rules").iterdir()) == ["blue.yaml", "shop.yaml"]
    assert len(documents((tmp_path / "rules" / "shop.yaml").read_text())) == 2
    ran = run(*arguments)
    assert (ran.code, "blue.yaml" in ran.err, "name another directory with --output-dir" in ran.err) == (1, True, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--from-traffic", "7x"), 2, "neither a duration, such as 12h or 168h, nor a file"),
        (("--from-traffic", f"{KEPT_H + 1}h"), 2, f"the last {KEPT_H} hours"),
        (("--from-traffic", "0s"), 2, f"the last {KEPT_H} hours"),
        (("--from-traffic", "FILE", "-A", "-n", "shop"), 2, "leave out -n"),
        (("--from-traffic", "FILE", "--output-dir", "FILE"), 2, "is not a directory"),
        (("--from-traffic", "FILE", "-A", "--exclude", "shop/stranger"), 2, "the callers are: 192.0.2.1, shop/buyer"),
        (
            ("--from-traffic", "FILE", "-n", "none"),
            1,
            "no call to a pod with a sidecar in namespace none is recorded, so",
        ),
        (("--from-traffic", "FILE", "-n", "shop", "--output-dir", "FILE/rules"), 1, "can't be written"),
    ],
)
def test_a_mistake_is_named_with_its_correction(
    run: Run, recorded: str, arguments: Sequence[str], code: int, message: str
) -> None:
    ran = run("generate", "traffictargets", *(text.replace("FILE", recorded) for text in arguments))
    assert (ran.code, ran.out) == (code, "")
    assert message in " ".join(ran.err.split())


def test_a_file_without_recorded_calls_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "calls.json").write_text("items")
    ran = run("generate", "traffictargets", "--from-traffic", str(tmp_path / "calls.json"))
    assert (ran.code, "no list of recorded calls can be read" in ran.err) == (1, True)


def test_recorded_calls_are_read_from_standard_input(recorded: str) -> None:
    arguments = ["generate", "traffictargets", "--from-traffic", "-", "-n", "shop"]
    result = CliRunner().invoke(app, arguments, input=Path(recorded).read_bytes())
    assert sources(Ran(result.exit_code, result.stdout, result.stderr)).keys() == {"web-http-8080"}


async def test_policies_select_the_running_pods_of_the_api(served: ServedMesh, recorded: str) -> None:
    await served.store.create(objects.namespace("shop"))
    for name, account in (("web-1", "web"), ("web-2", "web"), ("other", "other")):
        labels = {"app": account, "pod-template-hash": name}
        await served.store.create(objects.pod(name, account=account, namespace="shop", labels=labels))
    ran = await served.run(
        "generate", "xauthorizationpolicies", "--from-traffic", recorded, "-A", "--exclude", "192.0.2.1"
    )
    assert ran.code == 0, ran.err
    (policy,) = documents(ran.out)
    assert policy["metadata"]["name"] == "web"
    assert policy["spec"]["targetRefs"][0]["selector"] == {"matchLabels": {"app": "web"}}
    (rule,) = policy["spec"]["rules"]
    assert [source["serviceAccount"]["name"] for source in rule["sources"]] == ["buyer", "thief"]
    assert "# would newly refuse none of the recorded calls" in ran.out
    assert "1 XAuthorizationPolicy allows 6 recorded calls" in ran.err
    assert "no policy for ServiceAccount blue/store, because it has no running pod" in ran.err


async def test_a_policy_that_selects_a_version_alone_is_a_warning(served: ServedMesh, recorded: str) -> None:
    await served.store.create(objects.namespace("shop"))
    for account, version in (("web", "v1"), ("other", "v2")):
        labels = {"app": "shop", "app.kubernetes.io/version": version}
        await served.store.create(objects.pod(account, account=account, namespace="shop", labels=labels))
    ran = await served.run("generate", "xauthorizationpolicies", "--from-traffic", recorded, "-n", "shop")
    assert len(documents(ran.out)) == 1
    assert (
        "the policy for ServiceAccount shop/web selects only pods of the current version, by app.kubernetes.io/version"
        in ran.err
    )


async def test_a_mesh_without_traffic_says_so(served: ServedMesh) -> None:
    ran = await served.run("generate", "traffictargets", "--from-traffic", "168h")
    assert ran.code == 1
    assert (
        "no call to a pod with a sidecar in namespace default is recorded, so there are no traffictargets to write; -A includes"
        in ran.err
    )


def test_gaps_of_the_records_are_warnings(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    path.write_bytes(
        msgspec.json.encode(CallRecordList(recording_start_time=NOW, last_incomplete_time=NOW, items=CALLS))
    )
    ran = run("generate", "traffictargets", "--from-traffic", str(path), "-n", "shop")
    assert f"until {NOW} there were too many callers to record" in ran.err


def test_an_account_that_calls_itself_gets_a_warning_about_shared_accounts(run: Run, tmp_path: Path) -> None:
    """Workloads without a serviceAccountName share `default`: a rule from default to default allows all of them."""
    path = tmp_path / "calls.json"
    path.write_bytes(msgspec.json.encode(CallRecordList(items=(call("shop/default", "shop/default"),))))
    ran = run("generate", "traffictargets", "--from-traffic", str(path), "-n", "shop")
    assert "Warning: ServiceAccount shop/default calls itself, so its rule allows every pod of this account" in ran.err
    assert (
        "calls itself"
        not in run(
            "generate", "traffictargets", "--from-traffic", str(path), "-n", "shop", "--exclude", "shop/default"
        ).err
    )
