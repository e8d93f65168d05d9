import builtins

import pytest
from fake_rows import choice_rows, open_rows

from numsft.errors import UserError
from numsft.evaluation.entropy import EntropySums
from numsft.evaluation.plots import write_plots
from numsft.evaluation.scores import scores


def run(skill, with_entropy=True):
    rows = open_rows("gsm8k", 300, skill) + open_rows("simuleq", 120, skill, decimals=1)
    rows += open_rows("svamp", 200, skill + 0.2) + choice_rows("aqua", 100, skill / 2)
    sums = {
        "generated": EntropySums(100, 300, 12.0, 110.0),
        "teacher_forced": EntropySums(90, 200, 40.0, 180.0),
    }
    entropies = {"gsm8k": sums, "svamp": {"generated": sums["generated"]}} if with_entropy else None
    return scores(rows, "strict", entropies=entropies, resamples=200)


def draw(monkeypatch, tmp_path, runs):
    """Write the pictures; return the files and each figure's artists, before it was closed."""
    import matplotlib.pyplot as plt

    figures = {}
    monkeypatch.setattr(plt, "close", lambda figure: figures.setdefault(len(figures), figure))
    files = write_plots(runs, tmp_path)
    return files, [figures[i] for i in range(len(files))]


def points(axes, marker):
    return [line.get_xydata()[0].tolist() for line in axes.lines if line.get_marker() == marker]


def test_pictures_show_the_scores(monkeypatch, tmp_path):
    result = run(0.5)
    files, (accuracy, places, entropies) = draw(monkeypatch, tmp_path, {"del": result})
    assert [file.name for file in files] == ["accuracy.png", "places.png", "entropy.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    found = result["benchmarks"]
    assert [x for x, _ in points(accuracy.axes[0], "o")] == pytest.approx(
        [100 * entry["accuracy"] for entry in found.values()]
    )
    intervals = [line.get_xdata() for line in accuracy.axes[0].lines if line.get_linestyle() == "-"]
    assert [list(ends) for ends in intervals if len(ends) == 2] == [
        pytest.approx([100 * end for end in entry["accuracy_ci95"]]) for entry in found.values()
    ]
    drawn = [axes for axes in places.axes if axes.get_visible()]
    assert [axes.get_title("left") for axes in drawn] == ["GSM8K", "SimulEq", "SVAMP"]
    # From the left: ten thousands to units.
    gsm8k = found["gsm8k"]["places"]
    assert [y for _, y in points(drawn[0], "o")] == [gsm8k[place]["mae"] for place in "43210"]
    labels = [label.get_text() for label in drawn[0].get_xticklabels()]
    assert labels == [f"$10^{{{place}}}$\n{gsm8k[place]['n']}" for place in "43210"]
    assert points(entropies.axes[0], "o") == [[0.12, 0], [0.12, 1]]
    assert points(entropies.axes[1], "s") == [[0.9, 0]]
    for figure in (accuracy, places, entropies):
        for axes in figure.axes:
            for line in axes.lines:
                assert (line.get_xdata() >= axes.get_xlim()[0]).all(), "left of the picture"
                assert (line.get_xdata() <= axes.get_xlim()[1]).all(), "right of the picture"
                assert (line.get_ydata() <= max(axes.get_ylim())).all(), "above the picture"


def test_several_runs_stand_side_by_side(monkeypatch, tmp_path):
    _, figures = draw(monkeypatch, tmp_path, {"ce": run(0.4, False), "del": run(0.5, False)})
    assert len(figures) == 2  # no entropy was measured
    names = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert names == ["ce", "del"]
    first, second = points(figures[0].axes[0], "o"), points(figures[0].axes[0], "s")
    assert len(first) == len(second) == 4
    assert all(a[1] < b[1] for a, b in zip(first, second, strict=True))


def test_letters_alone_have_only_an_accuracy_picture(tmp_path):
    files = write_plots({"a": scores(choice_rows("aqua", 30, 0.5), "strict", resamples=100)}, tmp_path)
    assert [file.name for file in files] == ["accuracy.png"]


def test_without_matplotlib_the_extra_is_named(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *args, **options):
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"numsft\[report\]"):
        write_plots({"a": {}}, tmp_path)


def test_more_runs_than_colours_are_refused(tmp_path):
    with pytest.raises(UserError, match="at most 6"):
        write_plots({str(i): {} for i in range(7)}, tmp_path)
