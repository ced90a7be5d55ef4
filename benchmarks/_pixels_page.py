# SPDX-License-Identifier: Apache-2.0
"""The tables and the figure of the pixel benchmark, from its results; runs nothing."""

from typing import Any

from _pixels_methods import titles
from lerobot_craft.evaluation import wilson_interval

# From red over yellow to green, readable by the colour-blind because lightness falls at both ends.
_SCALE = ((178, 24, 43), (253, 219, 199), (247, 247, 247), (209, 229, 240), (33, 102, 172))


def tables(results: dict[str, Any]) -> str:
    """Return the three tables as Markdown: success and cost, each task, and the probes of language."""
    return "\n".join([*_success(results), "", *_by_task(results), "", *_probes(results), ""])


def _rows(results: dict[str, Any], kind: str = "evaluate") -> dict[str, dict[int, dict[str, Any]]]:
    """Return what was found for each row of the tables, by seed; rows without a result are left out."""
    found: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in titles()}
    for label, job in results["jobs"].items():
        what, place = label.split(" ", 1)
        seed, name = place.split("/", 1)
        if what == kind and name in found and "failed" not in job:
            found[name][int(seed)] = job
    return {name: seeds for name, seeds in found.items() if seeds}


def _tasks(results: dict[str, Any]) -> tuple[list[str], str]:
    return list(results["settings"]["old_tasks"]), str(results["settings"]["new_task"])


def _ends(seeds: dict[int, dict[str, Any]], tasks: list[str], key: str = "success") -> list[bool]:
    return [end for job in seeds.values() for task in tasks for end in job[key][task]]


def _rate(ends: list[bool]) -> str:
    if not ends:
        return ""
    low, high = wilson_interval(sum(ends), len(ends))
    return f"{sum(ends) / len(ends):.2f} ({low:.2f}–{high:.2f})"


def _success(results: dict[str, Any]) -> list[str]:
    old, new = _tasks(results)
    costs = {name: seeds[min(seeds)]["update_s"] for name, seeds in _rows(results, "cost").items()}
    paraphrased, trained = _rows(results, "paraphrases"), _rows(results, "train")
    lines = [
        f"| method | old tasks (95 %) | each seed | {new} (95 %) | each seed | old tasks, paraphrased | step / plain "
        "| run, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, seeds in _rows(results).items():
        each = " ".join(_mean(_ends({seed: job}, old)) for seed, job in sorted(seeds.items()))
        each_new = " ".join(_mean(_ends({seed: job}, [new])) for seed, job in sorted(seeds.items()))
        said = _rate(_ends(paraphrased[name], old, "paraphrase_success")) if name in paraphrased else ""
        cost = f"{costs[name] / costs['plain']:.2f}" if name in costs and "plain" in costs else ""
        rates = f"{_rate(_ends(seeds, old))} | {each} | {_rate(_ends(seeds, [new]))} | {each_new}"
        runs = [job["seconds"] for job in trained.get(name, {}).values()]
        took = f"{sum(runs) / len(runs):.0f}" if runs else ""
        lines.append(f"| {titles()[name]} | {rates} | {said} | {cost} | {took} |")
    return lines


def _mean(ends: list[bool]) -> str:
    return f"{sum(ends) / len(ends):.2f}" if ends else "–"


def _by_task(results: dict[str, Any]) -> list[str]:
    old, new = _tasks(results)
    lines = [f"| method | {' | '.join([*old, new])} |", "|---" * (len(old) + 2) + "|"]
    for name, seeds in _rows(results).items():
        cells = " | ".join(_mean(_ends(seeds, [task])) for task in (*old, new))
        lines.append(f"| {titles()[name]} | {cells} |")
    return lines


def _probes(results: dict[str, Any]) -> list[str]:
    names = {
        "old_words_old_scene_from_teacher": "old scene, old words: from the teacher",
        "paraphrase_from_teacher": "old scene, paraphrase: from the teacher",
        "old_words_new_scene_from_teacher": "new scene, old words: from the teacher",
        "old_words_new_scene_from_new_words": "new scene: old words from new words",
        "wrong_words_old_scene_from_right_words": "old scene: wrong words from right words",
    }
    lines = [f"| method | {' | '.join(names.values())} |", "|---" * (len(names) + 1) + "|"]
    for name, seeds in _rows(results).items():
        cells = []
        for probe in names:
            values = [job["probes"][probe] for _, job in sorted(seeds.items())]
            cells.append(f"{sum(values) / len(values):.2f} ({' '.join(f'{value:.2f}' for value in values)})")
        lines.append(f"| {titles()[name]} | {' | '.join(cells)} |")
    return lines


def figure(results: dict[str, Any]) -> str:
    """Return the success matrix as an SVG: methods down, tasks across, over all seeds."""
    old, new = _tasks(results)
    tasks, rows = [*old, new], _rows(results)
    left, top, cell, height = 290, 120, 76, 26
    width, tall = left + cell * len(tasks) + 60, top + height * len(rows) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {tall}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{tall}" fill="white"/>',
        "<title>Success of each method on each task</title>",
    ]
    for column, task in enumerate(tasks):
        place = left + cell * column + cell / 2 + (8 if task == new else 0)
        weight = ' font-weight="bold"' if task == new else ""
        parts.append(f'<text transform="translate({place},{top - 8}) rotate(-40)"{weight}>{task}</text>')
    for row, (name, seeds) in enumerate(rows.items()):
        y = top + height * row
        parts.append(f'<text x="{left - 8}" y="{y + 17}" text-anchor="end">{titles()[name].replace("`", "")}</text>')
        for column, task in enumerate(tasks):
            ends = _ends(seeds, [task])
            rate = sum(ends) / len(ends)
            x = left + cell * column + (8 if task == new else 0)
            colour = _colour(rate)
            ink = "white" if sum(colour) < 400 else "black"
            fill = f"rgb({','.join(map(str, colour))})"
            parts.append(f'<rect x="{x}" y="{y}" width="{cell - 2}" height="{height - 2}" fill="{fill}"/>')
            parts.append(f'<text x="{x + cell / 2}" y="{y + 17}" text-anchor="middle" fill="{ink}">{rate:.2f}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _colour(rate: float) -> list[int]:
    place = rate * (len(_SCALE) - 1)
    first = min(int(place), len(_SCALE) - 2)
    share = place - first
    return [round((1 - share) * a + share * b) for a, b in zip(_SCALE[first], _SCALE[first + 1], strict=True)]
