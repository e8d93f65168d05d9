"""The oracles themselves: each naive twin gives the vector published for its loss (derived in float64)."""

from math import exp, log

import pytest
import twins
from twins import DIGITS, GEN, ln9, uniform
from vectors import NTIL_42, NUMBER_VALUES, TOKEN_VALUES, TOL


@pytest.mark.parametrize(("name", "options", "z", "g", "log_mass", "expected", "tolerance"), NUMBER_VALUES)
def test_number_twin_gives_the_published_value(name, options, z, g, log_mass, expected, tolerance):
    assert twins.NUMBER_TWINS[name](z, g, DIGITS, log_mass, **options) == pytest.approx(
        expected, abs=tolerance, rel=0
    )


@pytest.mark.parametrize(("name", "options", "ce", "emo", "expected"), TOKEN_VALUES)
def test_token_twin_gives_the_published_value(name, options, ce, emo, expected):
    assert twins.TOKEN_TWINS[name](ce, emo, **options) == pytest.approx(expected, abs=TOL, rel=0)


def test_ntl_number_twin_gives_the_published_value():
    positions = [(ln9(4), 4, 1), (ln9(2), 2, 0)]
    assert twins.ntl_number(positions, DIGITS) == pytest.approx(0.0472589791, abs=1e-9)


def test_ntil_twin_gives_the_published_terms():
    flat = twins.ntil_parts([(uniform(), 4, 1), (uniform(), 2, 0)])
    peaked = twins.ntil_parts([(ln9(4), 4, 1), (ln9(2), 2, 0)])
    assert flat[0] == pytest.approx(NTIL_42["uniform_emd"], abs=1e-9)
    assert peaked[0] == pytest.approx(NTIL_42["ln9_emd"], abs=1e-9)
    _, relative, magnitude = twins.ntil_parts([(ln9(4), 4, 1), (ln9(0), 2, 0)])  # 40 predicted for 42
    assert relative == pytest.approx(2 / 43, abs=1e-9)
    assert magnitude == pytest.approx(log(43 / 41), abs=1e-9)


def test_smmd_twin_gives_the_published_kernel():
    degrees = []
    for i in range(10):
        degrees.append(sum(exp(-((i - j) ** 2) / 8) for j in range(10)))
    assert degrees[:5] == pytest.approx([3.006624, 3.889081, 4.495276, 4.817741, 4.941968], abs=1e-6)
    mmd, smooth, a = twins.smmd_parts(GEN, 3, DIGITS)
    assert a == pytest.approx(0.11819945080156706, abs=1e-12)
    assert (mmd, smooth) == pytest.approx((0.4594900033, 3.2059906059), abs=1e-9)


def test_dist2_twin_gives_the_published_soft_target():
    target = twins.dist2_target(3, DIGITS)
    assert target[1:5] == pytest.approx([0.010332, 0.207532, 0.564131, 0.207532], abs=1e-6)
    peaks = [max(twins.dist2_target(g, DIGITS)) for g in range(10)]
    assert (peaks[0], peaks[9]) == pytest.approx((0.7213, 0.7213), abs=1e-4)
    assert (peaks[1], peaks[8]) == pytest.approx((0.5701, 0.5701), abs=1e-4)


def test_twins_cover_what_their_option_tables_name():
    assert {name for name, _ in twins.NUMBER_OPTIONS} == set(twins.NUMBER_TWINS)
    assert {name for name, _ in twins.TOKEN_OPTIONS} == set(twins.TOKEN_TWINS)
