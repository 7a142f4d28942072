"""What a change costs, counted: the same for ten Services and for hundreds (docs/performance.md)."""

import pytest
from benchmarks.build import Pipeline, split


@pytest.mark.parametrize("services", [10, 300])
def test_a_change_of_a_weight_is_one_resource_encoded_and_sent(services):
    pipeline = Pipeline(services)
    first = pipeline.build(split(0, 90))
    assert first.encoded == first.resources > services
    for weight in (80, 70):
        change = pipeline.build(split(0, weight))
        assert (change.encoded, change.resources) == (1, 1)
        assert change.sent < 1000
    same = pipeline.build(split(0, 70))
    assert (same.encoded, same.resources, same.sent) == (0, 0, 0)
