"""Find the workload of a pod, even if some of its owners are missing."""

import pytest

from headgate.resources.meta import Metadata, OwnerReference, timestamp
from headgate.resources.pod_owners import Ownership, Ref, controller, deployment_of, owners, workload, workloads_of

POD = Ref("Pod", "shop", "web-5b6d4-bcdfg")
REPLICASET = Ref("ReplicaSet", "shop", "web-5b6d4")


@pytest.mark.parametrize(
    ("known", "chain"),
    [
        (
            {POD: Ownership(REPLICASET), REPLICASET: Ownership(Ref("Rollout", "shop", "r"))},
            [REPLICASET, Ref("Rollout", "shop", "r")],
        ),
        ({POD: Ownership(REPLICASET, "5b6d4")}, [REPLICASET, Ref("Deployment", "shop", "web")]),
        ({POD: Ownership(REPLICASET, "other")}, [REPLICASET]),
        ({REPLICASET: Ownership(Ref("Deployment", "shop", "web"))}, [REPLICASET, Ref("Deployment", "shop", "web")]),
        ({POD: Ownership()}, []),
        ({}, []),
    ],
)
def test_owners_are_the_chain_of_controllers(known, chain):
    assert list(owners(POD, known.get)) == chain


def test_a_pod_without_an_owner_is_its_own_workload():
    assert workload(POD, {POD: Ownership()}.get) == POD.name


def test_a_deleted_pod_belongs_to_the_deployment_in_its_name():
    assert workload(POD, {}.get) == "web"


def test_an_owner_that_is_not_the_controller_is_ignored():
    references = [{"kind": "Team", "name": "a"}, {"kind": "Job", "name": "b", "controller": True}]
    assert controller({"metadata": {"namespace": "shop", "ownerReferences": references}}) == Ref("Job", "shop", "b")
    assert controller({"metadata": {}}) is None


@pytest.mark.parametrize(
    ("kind", "name", "deployment"),
    [
        ("Deployment", "web", "web"),
        ("ReplicaSet", "web-5b6d4", "web"),
        ("ReplicaSet", "web", ""),
        ("Job", "web-5b6d4", ""),
    ],
)
def test_the_deployment_is_read_from_the_pods_metadata(kind, name, deployment):
    owner = OwnerReference(api_version="v1", kind=kind, name=name, uid="1", controller=True)
    labels = {"pod-template-hash": "5b6d4"}
    assert deployment_of(Metadata(name="p", namespace="shop", labels=labels, owner_references=(owner,))) == deployment


@pytest.mark.parametrize(
    ("kind", "name", "further"),
    [
        ("StatefulSet", "db", []),
        ("DaemonSet", "agent", []),
        ("ReplicationController", "old", []),
        ("ReplicaSet", "web-5b6d4", [Ref("Deployment", "shop", "web")]),
        ("Job", "report-29742510", [Ref("CronJob", "shop", "report")]),
        ("Job", "report-29737300", [Ref("CronJob", "shop", "report")]),  # three days before
        ("Job", "report-29142510", []),  # 400 days before
        ("Job", "report-29842510", []),  # after the pod
        ("Job", "import-20260720", []),  # a date
        ("Job", "migrate-42", []),
    ],
)
def test_the_workloads_of_a_pod_are_read_from_its_metadata(kind, name, further):
    owner = OwnerReference(api_version="v1", kind=kind, name=name, uid="1", controller=True)
    labels = {"pod-template-hash": "5b6d4"}
    created = timestamp(29742510 * 60 + 5)
    metadata = Metadata(
        name="p", namespace="shop", creation_timestamp=created, labels=labels, owner_references=(owner,)
    )
    assert [*workloads_of(metadata)] == [Ref(kind, "shop", name), *further]
