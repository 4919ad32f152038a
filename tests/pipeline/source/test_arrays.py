"""Arrow arrays that are made of buffers: they are those that `pyarrow.array` makes."""

import pytest

pa = pytest.importorskip("pyarrow")
arrays = pytest.importorskip("tidelog.pipeline.source.arrays")

LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    "values", [[], [0], [None], [1, None, -1], [LEAST, None, MOST], [None, 5] * 9, list(range(64))]
)
def test_int64s(values):
    made = arrays.int64s(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.int64()))


def test_an_int64_too_large_is_refused():
    with pytest.raises(OverflowError):
        arrays.int64s([MOST + 1])


@pytest.mark.parametrize("values", [[], [0], [-(2**31), 2**31 - 1, 7]])
def test_int32s(values):
    made = arrays.int32s(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.int32()))


@pytest.mark.parametrize("text", ["", "a", "orders.v1", "Zürich-日"])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_same_text(text, count):
    made = arrays.same_text(text, count)
    made.validate(full=True)
    assert made.equals(pa.array([text] * count, pa.string()))
