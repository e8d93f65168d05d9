import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numsft.evaluation import bootstrap
from numsft.evaluation.bootstrap import intervals, mcnemar


def test_intervals_are_those_of_a_plain_loop():
    columns = np.array([[1.0, 5.0], [0.0, np.nan], [1.0, 2.0], [0.0, 9.0], [1.0, np.nan]])
    rng = np.random.default_rng(3)
    means = []
    for _ in range(500):
        drawn = columns[rng.integers(0, 5, size=5)]
        means.append([np.mean(drawn[:, 0]), np.nanmean(drawn[:, 1]) if (~np.isnan(drawn[:, 1])).any() else np.nan])
    expected = np.nanquantile(np.array(means), [0.025, 0.975], axis=0).T
    np.testing.assert_allclose(intervals(columns, seed=3, resamples=500), expected)


def test_interval_of_a_share_has_the_binomial_width():
    right = (np.arange(1000) < 560).astype(float)[:, None]
    low, high = intervals(right)[0]
    half = 1.96 * (0.56 * 0.44 / 1000) ** 0.5
    assert low == pytest.approx(0.56 - half, abs=0.002)
    assert high == pytest.approx(0.56 + half, abs=0.002)


def test_nine_in_ten_intervals_and_more_hold_the_truth():
    rng = np.random.default_rng(0)
    held = 0
    for trial in range(200):
        low, high = intervals(rng.exponential(size=(100, 1)), seed=trial, resamples=400)[0]
        held += low <= 1.0 <= high
    assert 0.9 <= held / 200 <= 0.99


def test_the_draws_depend_on_the_seed_alone(monkeypatch):
    columns = np.random.default_rng(1).normal(size=(37, 3))
    once = intervals(columns, seed=5, resamples=300)
    assert (once == intervals(columns, seed=5, resamples=300)).all()
    assert (once != intervals(columns, seed=6, resamples=300)).all()
    monkeypatch.setattr(bootstrap, "_DRAWS_AT_ONCE", 37 * 7)
    np.testing.assert_allclose(once, intervals(columns, seed=5, resamples=300), rtol=1e-12)
    np.testing.assert_allclose(once[:1], intervals(columns[:, :1], seed=5, resamples=300), rtol=1e-12)


def test_columns_without_entries_have_no_interval():
    ends = intervals(np.array([[np.nan, 1.0], [np.nan, 1.0]]), resamples=50)
    assert np.isnan(ends[0]).all() and ends[1].tolist() == [1.0, 1.0]
    assert np.isnan(intervals(np.empty((0, 2)))).all()


def test_paired_interval_is_narrower_than_the_models_own():
    rng = np.random.default_rng(2)
    hard = rng.random(800)
    a, b = (hard < 0.6).astype(float), (hard < 0.57).astype(float)  # they fail on the same questions
    low, high = intervals((a - b)[:, None])[0]
    own = intervals(a[:, None])[0]
    assert 0 < low < high
    assert high - low < (own[1] - own[0]) / 2


@pytest.mark.parametrize(
    ("a_only", "b_only", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (5, 5, 1.0),
        (6, 0, 2 / 64),
        (10, 2, 2 * (1 + 12 + 66) / 4096),
        (3, 8, 2 * (1 + 11 + 55 + 165) / 2048),
    ],
)
def test_mcnemar_by_hand(a_only, b_only, p):
    assert mcnemar(a_only, b_only) == pytest.approx(p, rel=1e-14)


@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_is_symmetric_and_falls_with_the_gap(a_only, b_only):
    p = mcnemar(a_only, b_only)
    assert p == mcnemar(b_only, a_only)
    assert 0 < p <= 1
    low, high = sorted((a_only, b_only))
    assert mcnemar(low, high + 1) <= p or low == high


def test_mcnemar_of_thousands_of_disagreements_is_exact():
    assert mcnemar(2400, 2600) == pytest.approx(0.004883649737517494, rel=1e-12)  # scipy's binomtest
