"""What charts contain is read and stored: nothing is lost, and what has no effect is named.

`tests/e2e/test_charts.py` has them on a running mesh.
"""

from pathlib import Path

import pytest
from tests.charts import CHARTS, UNDEFINED, created_chart, kinds_in

from headgate.admission.chain import admission, object_check
from headgate.admission.injection import explicit_sidecars
from headgate.manifests.apply import apply
from headgate.manifests.files import read
from headgate.manifests.without_effect import left_out, lines
from headgate.settings import DEFAULTS
from headgate.standalone.store.memory import MemoryStore


def machine_store() -> MemoryStore:
    """Return a store that admits objects as that of one machine."""
    return MemoryStore(check=object_check(DEFAULTS), admit=admission(explicit_sidecars("all"), {}))


@pytest.mark.parametrize("path", sorted(CHARTS.glob("*.yaml")), ids=lambda path: path.stem)
async def test_each_object_of_a_chart_is_stored(path: Path) -> None:
    manifests = read([path])
    assert manifests.problems == ()
    applied = await apply(machine_store(), manifests)
    assert applied.problems == ()
    assert sorted(key.kind for key in applied.created) == kinds_in(path)


def test_each_kind_that_is_left_out_is_named() -> None:
    line = left_out(read([CHARTS]))
    assert f"objects of {len(UNDEFINED)} kinds are left out" in line
    assert all(f"1 {kind} (" in line for kind in UNDEFINED)


def test_each_line_about_charts_has_at_most_six_rows_of_a_terminal() -> None:
    assert [line for line in lines(read([CHARTS])) if len(line) > 6 * 80] == []


async def test_the_chart_of_helm_create_is_stored_with_every_option(tmp_path: Path) -> None:
    output = created_chart(tmp_path)
    manifests = read([output])
    assert manifests.problems == ()
    applied = await apply(machine_store(), manifests)
    assert sorted(key.kind for key in applied.created) == kinds_in(output)
    assert {"Ingress", "HTTPRoute", "HorizontalPodAutoscaler"} < {key.kind for key in applied.created}
