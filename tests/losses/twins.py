"""Slow, obvious twins of every loss: Python floats and loops over the classes, no torch.

A number twin is called as `twin(z, g, values, log_mass=None, **options) -> float` for one position: `z` the
logits of the number classes, `g` the index of the right one. `test_twins.py` holds the twins to the published
vectors; the other files hold the package to the twins.
"""

from __future__ import annotations

from math import exp, inf, log, log1p

GEN = [0.2, -1.0, 0.5, 1.5, 0.0, -0.3, 2.0, 0.1, -2.0, 0.7]
DIGITS = [float(digit) for digit in range(10)]


def uniform() -> list[float]:
    return [0.0] * 10


def ln9(g: int = 3) -> list[float]:
    """Probability one half on `g`, 1/18 on every other digit."""
    return [log(9.0) if digit == g else 0.0 for digit in range(10)]


def log_softmax(z):
    top = max(z)
    norm = top + log(sum(exp(x - top) for x in z))
    return [x - norm for x in z]


def softmax(z):
    return [exp(x) for x in log_softmax(z)]


def sigmoid(x):
    return 1.0 / (1.0 + exp(-x)) if x >= 0 else exp(x) / (1.0 + exp(x))


def softplus(x):
    return max(x, 0.0) + log1p(exp(-abs(x)))


def bce(z, g):
    """B_j: binary cross-entropy of each class against the one-hot target."""
    return [softplus(-x) if j == g else softplus(x) for j, x in enumerate(z)]


# --- number losses


def del_(z, g, values, log_mass=None, *, detach_weight=False, level=None):
    if level is not None:
        mean = sum(z) / len(z)
        z = [x - mean + level for x in z]
    return sum(p * b for p, b in zip(softmax(z), bce(z, g), strict=True))


def digit_entropy(z, g, values, log_mass=None):
    return -sum(exp(lp) * lp for lp in log_softmax(z))


def digit_focal(z, g, values, log_mass=None, *, gamma=2.0):
    total = 0.0
    for j, b in enumerate(bce(z, g)):
        s = sigmoid(z[j])
        total += (1.0 - s if j == g else s) ** gamma * b
    return total


def ground_cost(values, *, squash=None, power=1.0, modulus=None):
    cost = []
    for a in values:
        row = []
        for b in values:
            d = abs(a - b)
            if modulus is not None:
                d = min(d, modulus - d)
            row.append(0.0 if d == 0.0 else d**power)
        cost.append(row)
    if squash is not None:
        off = [d for row in cost for d in row if d > 0.0]
        low, high = min(off), max(off)
        slope = (squash - 1.0) / (high - low)
        cost = [[0.0 if d == 0.0 else 1.0 + (d - low) * slope for d in row] for row in cost]
    return cost


def reweighed(loss, largest, log_mass):
    m = exp(log_mass)
    return m * loss + 1.01 * largest * (1.0 - m)


def ntl_was(z, g, values, log_mass=None, *, squash=None, power=1.0, modulus=None, reweigh=False):
    cost = ground_cost(values, squash=squash, power=power, modulus=modulus)
    loss = sum(p * c for p, c in zip(softmax(z), cost[g], strict=True))
    return reweighed(loss, max(max(row) for row in cost), log_mass) if reweigh else loss


def error(difference, kind):
    a = abs(difference)
    if kind == "mse":
        return a * a
    if kind == "mae":
        return a
    return 0.5 * a * a if a < 1.0 else a - 0.5


def ntl_mse(z, g, values, log_mass=None, *, loss="mse", reweigh=False):
    expected = sum(p * v for p, v in zip(softmax(z), values, strict=True))
    term = error(expected - values[g], loss)
    return reweighed(term, error(max(values) - min(values), loss), log_mass) if reweigh else term


def dist2_target(g, values, tau=1.0):
    return softmax([-((v - values[g]) ** 2) / tau for v in values])


def dist2(z, g, values, log_mass=None, *, tau=1.0, full_vocab=False):
    kl = 0.0
    for q, lp in zip(dist2_target(g, values, tau), log_softmax(z), strict=True):
        if q > 0.0:
            kl += q * (log(q) - lp)
    return kl - log_mass if full_vocab else kl


def smmd_parts(z, g, values, *, kernel="gaussian", sigma=2.0, smoothness="auto"):
    bandwidths = [sigma] if isinstance(sigma, int | float) else list(sigma)
    size = len(values)
    gram = [[0.0] * size for _ in values]
    for i in range(size):
        for j in range(size):
            d = abs(values[i] - values[j])
            for s in bandwidths:
                gram[i][j] += exp(-d * d / (2 * s * s) if kernel == "gaussian" else -d / s) / len(bandwidths)
    p = softmax(z)
    r = [p[j] - (1.0 if j == g else 0.0) for j in range(size)]
    mmd = sum(r[i] * gram[i][j] * r[j] for i in range(size) for j in range(size))
    smooth = 0.5 * sum(gram[i][j] * (r[i] - r[j]) ** 2 for i in range(size) for j in range(size))
    mean_degree = sum(sum(row) for row in gram) / size
    return mmd, smooth, (1.0 / (2.0 * mean_degree) if smoothness == "auto" else smoothness)


def smmd(z, g, values, log_mass=None, **options):
    mmd, smooth, a = smmd_parts(z, g, values, **options)
    return mmd + a * smooth


def crps(z, g, values, log_mass=None):
    """On unit-spaced values: the squared distance of the two cumulative distributions."""
    p = softmax(z)
    total = 0.0
    for v in values:
        below = sum(p[j] for j in range(len(values)) if values[j] <= v)
        total += (below - (1.0 if v >= values[g] else 0.0)) ** 2
    return total


def digit_ce(z, g, values, log_mass=None):
    return -log_softmax(z)[g]


def gaussian_target(g, values, sigma=1.0):
    return softmax([-((v - values[g]) ** 2) / (2 * sigma * sigma) for v in values])


def gaussian_smoothing(z, g, values, log_mass=None, *, sigma=1.0):
    return -sum(
        q * (lp + log_mass) for q, lp in zip(gaussian_target(g, values, sigma), log_softmax(z), strict=True)
    )


def del_distance(z, g, values, log_mass=None):
    return sum(p * b * abs(v - values[g]) for p, b, v in zip(softmax(z), bce(z, g), values, strict=True))


def del_margin(z, g, values, log_mass=None):
    p = softmax(z)
    return sum(p[j] * log(1 + p[j] / p[g]) for j in range(len(z)) if j != g)


NUMBER_TWINS = {
    "del": del_,
    "del_margin": del_margin,
    "digit_entropy": digit_entropy,
    "digit_focal": digit_focal,
    "ntl_was": ntl_was,
    "ntl_mse": ntl_mse,
    "dist2": dist2,
    "smmd": smmd,
    "crps": crps,
    "digit_ce": digit_ce,
    "gaussian_smoothing": gaussian_smoothing,
    "del_distance": del_distance,
}

# Every set of options whose value is compared with the twin.
NUMBER_OPTIONS = [
    ("del", {}),
    ("del", {"detach_weight": True}),
    ("del", {"level": 5.0}),
    ("del", {"level": -2.0, "detach_weight": True}),
    ("digit_entropy", {}),
    ("digit_focal", {}),
    ("digit_focal", {"gamma": 0.0}),
    ("digit_focal", {"gamma": 1.5}),
    ("ntl_was", {}),
    ("ntl_was", {"reweigh": True}),
    ("ntl_was", {"squash": 2.0}),
    ("ntl_was", {"squash": 2.0, "reweigh": True}),
    ("ntl_was", {"power": 2.0}),
    ("ntl_was", {"power": 2.0, "reweigh": True}),
    ("ntl_was", {"power": 0.5}),
    ("ntl_was", {"power": 0.0}),
    ("ntl_was", {"modulus": 10.0}),
    ("ntl_was", {"modulus": 12.0, "reweigh": True}),
    ("ntl_mse", {}),
    ("ntl_mse", {"reweigh": True}),
    ("ntl_mse", {"loss": "mae"}),
    ("ntl_mse", {"loss": "mae", "reweigh": True}),
    ("ntl_mse", {"loss": "huber"}),
    ("ntl_mse", {"loss": "huber", "reweigh": True}),
    ("dist2", {}),
    ("dist2", {"tau": 4.0}),
    ("dist2", {"full_vocab": True}),
    ("smmd", {}),
    ("smmd", {"kernel": "laplace"}),
    ("smmd", {"sigma": (1.0, 2.0, 4.0)}),
    ("smmd", {"sigma": 1.0, "smoothness": 0.25}),
    ("smmd", {"smoothness": 0.0}),
    ("crps", {}),
    ("digit_ce", {}),
    ("gaussian_smoothing", {}),
    ("gaussian_smoothing", {"sigma": 2.0}),
    ("del_distance", {}),
    ("del_margin", {}),
]


# --- number-level losses


def ntl_number(positions, values, eps=2.220446049250313e-16):
    """One number. `positions` holds (z, g, place) of each digit."""
    expected = right = 0.0
    for z, g, place in positions:
        expected += 10.0**place * sum(p * v for p, v in zip(softmax(z), values, strict=True))
        right += 10.0**place * values[g]
    return abs(expected - right) / (abs(expected) + abs(right) + eps)


def ntil_parts(positions):
    """EMD, relative and magnitude term of one integer; its digits' arg-max is clear of the sampling noise."""
    emd = predicted = right = 0.0
    for z, g, place in positions:
        emd += 1.2**place * sum(p * abs(j - g) for j, p in enumerate(softmax(z)))
        predicted += 10.0**place * max(range(10), key=lambda j, z=z: z[j])
        right += 10.0**place * g
    low, high = min(predicted, right), max(predicted, right)
    return emd / len(positions), (high - low) / (high + 1.0), log((high + 1.0) / (low + 1.0))


def ntil(positions):
    emd, relative, magnitude = ntil_parts(positions)
    return emd + 0.2 * relative + 0.2 * magnitude


# --- token losses


def ce(ce, emo=None):
    return ce


def mixce_factor(ce, eta):
    return eta + (1.0 - eta) * exp(-ce)


def mixce(ce, emo=None, *, eta=0.5):
    return mixce_factor(ce, eta) * ce


def dft(ce, emo=None):
    return exp(-ce) * ce


def tailr_factor(ce, gamma):
    q = exp(-ce)
    bottom = (1.0 - gamma) + gamma * q
    ratio = q / bottom if bottom > 0.0 else inf
    return gamma + (1.0 - gamma) * min(max(ratio, 0.2), 1.0)


def tailr(ce, emo=None, *, gamma=0.5):
    return tailr_factor(ce, gamma) * ce


def emo(ce, emo=None, *, mode=1):
    if mode == 1:
        return 0.5 * (ce + ce / (emo + 1e-10) * emo)
    return emo / (ce + 1e-10) * ce + emo


TOKEN_TWINS = {"ce": ce, "mixce": mixce, "dft": dft, "tailr": tailr, "emo": emo}


def token_slopes(name, ce, emo, **options):
    """(d loss / d ce, d loss / d emo), with the factors that the papers detach held constant."""
    if name == "ce":
        return 1.0, 0.0
    if name == "mixce":
        return mixce_factor(ce, options.get("eta", 0.5)), 0.0
    if name == "dft":
        return exp(-ce), 0.0
    if name == "tailr":
        return tailr_factor(ce, options.get("gamma", 0.5)), 0.0
    if options.get("mode", 1) == 1:
        return 0.5, 0.5 * ce / (emo + 1e-10)
    return emo / (ce + 1e-10), 1.0


TOKEN_OPTIONS = [
    ("ce", {}),
    ("mixce", {}),
    ("mixce", {"eta": 0.0}),
    ("mixce", {"eta": 1.0}),
    ("mixce", {"eta": 0.1}),
    ("dft", {}),
    ("tailr", {}),
    ("tailr", {"gamma": 0.1}),
    ("tailr", {"gamma": 0.9}),
    ("emo", {}),
    ("emo", {"mode": 2}),
]
