"""The two pictures of a diagnosis. matplotlib is imported here alone."""

from __future__ import annotations

import importlib.util
import io
from typing import TYPE_CHECKING, Any

import torch

from numsft.diagnose.embeddings import DigitMap, ideal_similarity
from numsft.diagnose.measure import Readings
from numsft.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Of Okabe and Ito's palette, told apart with any colour vision.
_DIGIT, _SUBSPACE, _OTHER = "#D55E00", "#E69F00", "#0072B2"
_MAP = "cividis"
_DPI = 150
_STYLE = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
}


def check_matplotlib() -> None:
    """Raise a `UserError` that names the extra where matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError(
            'the pictures need matplotlib, which is not installed: run `pip install "numsft[report]"`'
        )


def entropy_png(readings: Readings, title: str) -> bytes:
    """Draw entropy at digits against elsewhere: means, and how the positions are spread."""
    plt = _pyplot()
    groups = [("other tokens", _OTHER, readings.other_entropy), ("digits", _DIGIT, readings.entropy)]
    bars = [*groups, ("digits, over\nnumber tokens only", _SUBSPACE, readings.subspace_entropy)]
    with plt.rc_context(_STYLE):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(8, 3.2), layout="constrained", gridspec_kw={"width_ratios": [1, 1.25]}
        )
        for row, (_, color, values) in enumerate(bars):
            if not len(values):
                continue
            mean = float(values.double().mean())
            error = 1.96 * float(values.double().std(correction=0)) / len(values) ** 0.5
            left.barh(row, mean, color=color, height=0.62, xerr=error, ecolor="#444444", capsize=3)
            left.text(mean + error, row, f"  {mean:.2f}", va="center")
        left.set_yticks(range(len(bars)), [name for name, _, _ in bars])
        left.invert_yaxis()
        left.margins(x=0.18)
        left.set_xlabel("mean entropy (nats), with 95 % interval")
        top = max(float(values.max()) for _, _, values in groups if len(values))
        bins = torch.linspace(0, max(top, 1e-3), 31).tolist()
        for name, color, values in groups:
            if len(values):
                share = [1 / len(values)] * len(values)
                style: dict[str, Any] = {"bins": bins, "weights": share, "color": color}
                right.hist(values.tolist(), alpha=0.3, **style)
                right.hist(values.tolist(), histtype="step", linewidth=1.6, **style)
                right.plot([], color=color, linewidth=1.6, label=f"{name} ({len(values)})")
        right.set_xlabel("entropy over the full vocabulary (nats)")
        right.set_ylabel("share of positions")
        right.legend(frameon=False)
        figure.suptitle(f"Entropy of the next token, teacher-forced: {title}", fontsize=11)
        return _png(figure)


def embeddings_png(maps: dict[str, DigitMap | None], title: str) -> bytes:
    """Draw ideal similarity, cosines and a projection of the digits' vectors, a row a set of vectors."""
    plt = _pyplot()
    names = {"input": "input embeddings", "lm_head": "LM head rows"}
    drawn = [(names[name], one) for name, one in maps.items() if one is not None]
    if len(drawn) == 1:
        drawn = [("embeddings" if "lm_head" in maps else names["input"], drawn[0][1])]
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(
            len(drawn), 3, figsize=(10, 3.4 * len(drawn) + 0.2), layout="constrained", squeeze=False
        )
        for (name, one), (ideal, cosine, plane) in zip(drawn, axes, strict=True):
            _matrix(
                figure,
                cosine,
                one.cosine,
                f"cosine of {name}\n(correlation with ideal {one.order_correlation:.2f})",
            )
            _matrix(figure, ideal, ideal_similarity(), "ideal: 1 − |i − j| / 9\n(a number line)")
            x, y = one.projection.T.tolist()
            plane.plot(x, y, color="#999999", linewidth=1, zorder=1)
            plane.scatter(x, y, c=range(10), cmap=_MAP, s=170, edgecolors="white", zorder=2)
            for digit in range(10):
                color = "white" if digit < 6 else "black"
                plane.text(
                    x[digit], y[digit], str(digit), color=color, ha="center", va="center_baseline", zorder=3
                )
            plane.set_title(f"{name},\nfirst two principal components")
            plane.set_xlabel(f"1st ({one.explained[0]:.0%} of the variance)")
            plane.set_ylabel(f"2nd ({one.explained[1]:.0%})")
            plane.margins(0.12)
            plane.set_aspect("equal", adjustable="datalim")
        figure.suptitle(f"Digits 0 to 9: {title}", fontsize=11)
        return _png(figure)


def _matrix(figure: Figure, axes: Any, values: torch.Tensor, title: str) -> None:
    """Draw a map without its diagonal, which is 1 everywhere and would take up the colours."""
    shown = values.double().masked_fill(torch.eye(10, dtype=torch.bool), torch.nan)
    image = axes.imshow(shown.tolist(), cmap=_MAP)
    axes.set_facecolor("#dddddd")
    axes.set_title(title)
    axes.set_xticks(range(10))
    axes.set_yticks(range(10))
    axes.tick_params(length=0)
    axes.set_xlabel("digit")
    axes.set_ylabel("digit")
    for side in axes.spines.values():
        side.set_visible(False)
    figure.colorbar(image, ax=axes, fraction=0.046)


def _pyplot() -> Any:
    check_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _png(figure: Figure) -> bytes:
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, bbox_inches="tight", pad_inches=0.08)
    plt.close(figure)
    return buffer.getvalue()
