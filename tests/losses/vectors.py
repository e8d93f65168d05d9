"""Test vectors of the papers and their code, in float64. Target digit 3 unless the row says otherwise."""

from math import exp, log

from twins import GEN, ln9, uniform

TOL = 1e-9
UNI, LN9 = uniform(), ln9()
# Four more tokens of logit 0 beside the ten digits: the mass that the digits hold.
MASS_UNI, MASS_LN9 = log(10 / 14), log(18 / 22)


def _rows(name, options, values, *, log_masses=(0.0, 0.0, 0.0), tolerance=TOL):
    """Rows for the uniform, `ln9` and `gen` logits; None leaves one out."""
    return [
        (name, options, z, 3, mass, expected, tolerance)
        for z, mass, expected in zip((UNI, LN9, GEN), log_masses, values, strict=True)
        if expected is not None
    ]


# name, options, logits, target, log_mass, value, absolute tolerance (1e-9, or the digits that were published)
NUMBER_VALUES = [
    *_rows("del", {}, (log(2), 0.39925384810888576, 1.1679352109621952)),
    *(("del", {}, UNI, g, 0.0, log(2), TOL) for g in range(10)),
    *(
        ("del", {}, [x + c for x in GEN], 3, 0.0, expected, 1e-6)
        for c, expected in (
            (-20, 4.124153),
            (-10, 1.895075),
            (-5, 0.808466),
            (5, 4.709741),
            (10, 8.591794),
        )
    ),
    ("del", {}, [x + 20 for x in GEN], 3, 0.0, 16.362499340, TOL),
    # Whatever the level that came in, the level asked for goes out: the mean of `gen` is 0.17.
    ("del", {"level": 0.17}, [x + 20 for x in GEN], 3, 0.0, 1.1679352109621952, TOL),
    ("del", {"level": 20.17}, GEN, 3, 0.0, 16.362499340, TOL),
    ("del", {"detach_weight": True}, GEN, 3, 0.0, 1.1679352109621952, TOL),
    *_rows("digit_entropy", {}, (2.302585092994046, 1.791759469228055, 1.8454765475478434)),
    *_rows("digit_focal", {}, (1.7328679513998633, 1.560634761416455, 3.2713285476067844)),
    *_rows("digit_focal", {"gamma": 0.0}, (6.931471805599453, 6.343685140697334, 7.635831975136121)),
    *_rows("ntl_was", {}, (2.7, 1.5, 2.3815053935342974)),
    ("ntl_was", {}, UNI, 0, 0.0, 4.5, TOL),
    ("ntl_was", {}, ln9(0), 0, 0.0, 2.5, TOL),
    *_rows("ntl_was", {"power": 2.0}, (10.5, 35 / 6, 8.8609430822)),
    *_rows("ntl_was", {"squash": 9.0}, (2.7, 1.5, 2.3815053935342974)),
    *_rows("ntl_was", {"squash": 2.0}, (1.125, 0.625, None)),
    *_rows(
        "ntl_was",
        {"squash": 2.0, "reweigh": True},
        (1.3807142857, 0.8786363636, None),
        log_masses=(MASS_UNI, MASS_LN9, 0.0),
    ),
    *_rows(
        "ntl_was", {"reweigh": True}, (4.525714285714286, 2.88, None), log_masses=(MASS_UNI, MASS_LN9, 0.0)
    ),
    *_rows("ntl_mse", {}, (2.25, 0.6944444444, 3.1675470198)),
    *_rows("ntl_mse", {"loss": "mae"}, (1.5, 0.8333333333, 1.7797603827)),
    *_rows("ntl_mse", {"loss": "huber"}, (1.0, 0.3472222222, 1.2797603827)),
    *_rows(
        "ntl_mse",
        {"reweigh": True},
        (24.981428571428, 15.442727272727, None),
        log_masses=(MASS_UNI, MASS_LN9, 0.0),
    ),
    *_rows("dist2", {}, (1.2311386259749952, 0.5794022170859101, 0.9927796098907579)),
    *_rows("dist2", {"tau": 2.0}, (0.8848038046, 0.5959060552, 0.9240686561)),
    *_rows("dist2", {"tau": 4.0}, (0.5645065527, 0.5288836923, 0.7972111563)),
    ("dist2", {}, UNI, 1, 0.0, 1.2787474888, TOL),
    ("dist2", {}, UNI, 2, 0.0, 1.2318001243, TOL),
    ("dist2", {"full_vocab": True}, UNI, 3, MASS_UNI, 1.2311386259749952 - MASS_UNI, TOL),
    *_rows("smmd", {}, (0.9107204769962112, 0.28108656697413925, 0.838436332166464)),
    *_rows("smmd", {"smoothness": 0.0}, (0.4594655553, 0.1418103566, 0.4594900033)),
    *_rows(
        "smmd",
        {"smoothness": 1.0},
        (0.4594655553 + 3.8177412727, 0.1418103566 + 1.1783152076, 0.4594900033 + 3.2059906059),
    ),
    *_rows("crps", {}, (1.05, None, None)),
    *_rows("digit_ce", {}, (log(10), log(2), 1.5009101337677613)),
]

# name, options, logits, gradient at the target, absolute tolerance. Target digit 3.
TARGET_GRADIENTS = [
    ("del", {}, UNI, -0.05, TOL),
    ("del", {}, LN9, -0.1969466662, TOL),
    ("del", {}, GEN, -0.256131610, TOL),
    ("del", {"detach_weight": True}, GEN, -0.040667607, TOL),
    *(
        ("del", {}, [x + c for x in GEN], expected, 1e-6)
        for c, expected in (
            (-20, 2.98184),
            (-10, 1.249581),
            (-5, 0.390256),
            (5, -1.049929),
            (10, -1.915344),
            (20, -3.647646),
        )
    ),
    ("ntl_was", {}, GEN, -0.5309022679, TOL),
    ("dist2", {}, LN9, -0.0641312620, TOL),
    ("dist2", {"tau": 2.0}, LN9, 0.101, 5e-4),
    ("smmd", {}, GEN, -0.3738204846, TOL),
]

# "42" at uniform and `ln9` logits
NTIL_42 = {"uniform_emd": 3.05, "ln9_emd": 1.6944444444}

CE_04 = -log(0.4)
EMO_ADAPTIVE = 1.0585786437626905

# name, options, cross-entropy, EMO term, value
TOKEN_VALUES = [
    ("ce", {}, CE_04, None, 0.916290731874155),
    ("mixce", {}, CE_04, None, 0.6414035123119085),
    ("mixce", {"eta": 0.0}, CE_04, None, 0.366516292749662),
    ("mixce", {"eta": 1.0}, CE_04, None, 0.916290731874155),
    ("dft", {}, CE_04, None, 0.366516292749662),
    ("tailr", {}, CE_04, None, 0.7199427179),
    ("emo", {}, CE_04, EMO_ADAPTIVE, 0.9162907318),
    ("emo", {"mode": 2}, CE_04, EMO_ADAPTIVE, 2.1171572874),
]

assert abs(exp(-CE_04) - 0.4) < 1e-15
