"""The statuses of the golden cases have only fields that the schemas of their kinds declare, with sound values."""

import pytest
from tests.golden.cases import CASES, HERE, compiled, read

from headgate.plane.status.conditions import StatusInputs
from headgate.plane.status.receipts import Receipts
from headgate.plane.status.work_queue import ReportIndex
from headgate.plane.status.writer import ONLY_WITH_FINDINGS, STATUSES
from headgate.resources.columns import with_summary
from headgate.resources.registry import find
from headgate.resources.schema.catalog import schema_of
from headgate.resources.schema.check import check_schema

NOON = "2026-01-01T12:00:00Z"


@pytest.mark.parametrize("case", CASES)
def test_statuses_have_only_declared_fields(case: str) -> None:
    reports = ReportIndex(compiled(case))
    for key, obj in read(HERE / case / "in.yaml").items():
        compute = (STATUSES | ONLY_WITH_FINDINGS).get((key.group, key.kind))
        kind = find(key.group, key.kind)
        if compute is None or kind is None:
            continue
        status = compute(obj, reports.report(key), StatusInputs(Receipts(()), NOON))
        if status is not None:
            schema = schema_of(kind, kind.group, kind.versions[0])["properties"]["status"]
            checked = check_schema(with_summary(kind.columns, obj, status), schema)
            assert (checked.unknown, checked.causes) == ([], []), key
