# SPDX-License-Identifier: Apache-2.0
"""Every table of docs/comparison.md: runs the comparisons that are not there yet, then prints what they found.

python benchmarks/forgetting.py                    # the tables of the results in benchmarks/results
python benchmarks/forgetting.py --run outputs/all  # everything anew, in a few hours; goes on if stopped
python benchmarks/forgetting.py --write            # the tables into the documents
"""

import json
import math
import re
import shutil
import statistics
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from _figures import parser, write_figures
from lerobot_craft.comparison._results import spread, table

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DOCS = HERE.parent / "docs"
PAGES = [
    HERE.parent / "README.md",
    HERE.parent / "README.zh-CN.md",
    DOCS / "log.md",
    *(DOCS / language / name for language in ("", "zh") for name in ("comparison.md", "which-method.md", "drift.md")),
]

DRAWER = ("--old_tasks=hammer,faucet-close,push,button-press-topdown", "--new_tasks=drawer-open")
WINDOW = ("--old_tasks=door-open,plate-slide,handle-press,door-unlock", "--new_tasks=window-open")
NARROW = "faucet-close,handle-press-side,push,window-close"
BUTTON = ("--old_tasks=drawer-close,faucet-open,push-wall,door-lock", "--new_tasks=button-press")
# Name of the results, folder under the root, and what is added to the command.
STUDIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "replay": ("everything", ("--study=benchmarks/studies/replay.toml", "--problems=splits")),
    "ablation": ("drawer", ("--study=benchmarks/studies/ablation.toml", *DRAWER)),
    "sequence_narrow": (
        "narrow",
        ("--methods=plain,craft,action,replay", "--old_tasks=hammer", f"--new_tasks={NARROW}"),
    ),
    "controller_drawer": ("drawer", ("--study=benchmarks/studies/controller.toml", *DRAWER)),
    "controller_window": ("window", ("--study=benchmarks/studies/controller.toml", *WINDOW)),
    "door_lock": ("button", ("--study=benchmarks/studies/door_lock.toml", *BUTTON)),
    "cost": ("splits", ("--study=benchmarks/studies/cost.toml", "--problems=splits")),
    "t8": ("drawer", ("--study=benchmarks/studies/t8.toml", *DRAWER)),
}

type Results = dict[str, Any]


def run(root: Path) -> None:
    """Run the default comparison and the studies, and keep their results without the paths of this machine."""
    from lerobot_craft.cli import main

    for name, (folder, words) in STUDIES.items():
        if main(["compare", *words, f"--output_dir={root / folder}"]) != 0:
            raise SystemExit(f"the study {name} did not finish; the same command goes on")
        keep(root / folder / "results.json", name)
    # Last, since a study shares its folder: what lies there afterwards is the comparison, with its report.
    everything = root / "everything"
    if main(["compare", f"--output_dir={everything}"]) != 0:
        raise SystemExit("the comparison did not finish; the same command goes on")
    keep(everything / "results.json", "compare")
    keep(everything / "sequence" / "results.json", "sequence")


def keep(path: Path, name: str) -> None:
    """Copy results to the folder of this repository, without checkpoints."""
    results = json.loads(path.read_text(encoding="utf-8"))
    results["command"] = re.sub(r" --output_dir=\S+", "", results["command"])
    for method in results["methods"].values():
        for each in method["runs"]:
            for stage in each["stages"]:
                stage.pop("checkpoint", None)
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(results, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def read(name: str) -> Results:
    """Return the results of one comparison."""
    found: Results = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def by_split(results: Results) -> str:
    """Return old success split by split: mean and every seed."""
    names = [problem["name"] for problem in results["problems"]]
    lines = [f"| method | {' | '.join(names)} |", f"|{'---|' * (len(names) + 1)}"]
    old = {problem["name"]: problem["old_tasks"] for problem in results["problems"]}
    for row in (results["teacher"], *results["methods"].values()):
        cells = []
        for name in names:
            rates = [_last(each) for each in row["runs"] if each["problem"] == name]
            means = [statistics.fmean(rate[task] for task in old[name]) for rate in rates]
            cells.append(f"{statistics.fmean(means):.3f} ({' '.join(f'{mean:.2f}' for mean in means)})")
        lines.append(f"| {row['title']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def paired(results: Results) -> str:
    """Return old success against the teacher's and against replay's on the same split and seed: mean and interval."""
    old = {problem["name"]: problem["old_tasks"] for problem in results["problems"]}

    def means(row: Results) -> list[float]:
        return [statistics.fmean(_last(each)[task] for task in old[each["problem"]]) for each in row["runs"]]

    lines = ["| method | old, minus the teacher's | old, minus replay's | worse than replay on |", "|---|---|---|---|"]
    teacher, replay = means(results["teacher"]), means(results["methods"]["replay"])
    for row in results["methods"].values():
        differences = [[a - b for a, b in zip(means(row), other, strict=True)] for other in (teacher, replay)]
        cells = [f"{one['mean']:+.3f} ({one['low']:+.3f} to {one['high']:+.3f})" for one in map(spread, differences)]
        worse = sum(difference < 0 for difference in differences[1])
        lines.append(f"| {row['title']} | {' | '.join(cells)} | {worse} of {len(replay)} |")
    return "\n".join(lines)


def _last(each: dict[str, Any]) -> dict[str, float]:
    rates: dict[str, float] = each["stages"][-1]["success_by_task"] if "stages" in each else each["success_by_task"]
    return rates


def strengths(results: Results) -> str:
    """Return what each method was tried with on the tuning problem: old / new success; the chosen one in bold."""
    lines = ["| method | setting | tried: old / new |", "|---|---|---|"]
    for row in results["methods"].values():
        strength = row["strength"]
        if strength is not None:
            tried = [_try(one, chosen=one["value"] == strength["chosen"]) for one in strength["tried"]]
            lines.append(f"| {row['title']} | `{strength['setting']}` | {' · '.join(tried)} |")
    return "\n".join(lines)


def _try(one: dict[str, Any], *, chosen: bool) -> str:
    value = str(one["value"]).replace("|", r"\|")
    text = f"{value}: {one['old_success']:.2f} / {one['new_success']:.2f}"
    return f"**{text}**" if chosen else text


def sequence(results: Results) -> str:
    """Return the end of a sequence: success over all its tasks, forgetting, and the new tasks when they were learnt."""
    lines = [
        "| method | average success at the end | forgetting (NBT) | new tasks, right after | drift |",
        "|---|---|---|---|---|",
    ]
    for row in results["methods"].values():
        cells = [_mean(row[key]) for key in ("average_success", "forgetting", "new_success", "drift")]
        lines.append(f"| {row['title']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(results: Results) -> str:
    """Return the comparison in four columns, the methods that kept most first; those that are the same run once."""
    lines = ["| | old tasks, mean and 95 % | new task | time |", "|---|---|---|---|"]
    once = {row["command"]: row for row in reversed(results["methods"].values())}.values()
    ordered = sorted(once, key=lambda row: -row["old_success"]["mean"])
    for row in (results["teacher"], *ordered):
        old, new = row["old_success"], row["new_success"]
        time = f"× {row['time_ratio']['mean']:.1f}" if "time_ratio" in row else ""
        spans = f"{old['mean']:.2f} ({old['low']:.2f} to {old['high']:.2f}) | {new['mean']:.2f}"
        lines.append(f"| {row['title']} | {spans} | {time} |")
    return "\n".join(lines)


def short(results: Results) -> str:
    """Return old success, new success, forgetting, drift and time of every method."""
    lines = ["| | old | new | NBT | drift | CPU s |", "|---|---|---|---|---|---|"]
    rows = [results["teacher"], *results["methods"].values()]
    for row in rows:
        cells = [_mean(row[key]) if key in row else "" for key in ("old_success", "new_success", "forgetting")]
        rest = [
            f"{row[key]['mean']:{form}}" if key in row else "" for key, form in (("drift", ".3f"), ("train_s", ".1f"))
        ]
        lines.append(f"| {row['title']} | {' | '.join([*cells, *rest])} |")
    return "\n".join(lines)


def _mean(value: dict[str, Any]) -> str:
    return f"{value['mean']:.3f} ({' '.join(f'{each:.2f}' for each in value['values'])})"


def on_two(first: Results, second: Results) -> str:
    """Return old and new success of every method on two problems."""
    names = [results["problems"][0]["new_tasks"][0] for results in (first, second)]
    heads = [f"{name}: {which}" for name in names for which in ("old", "new")]
    lines = [f"| | {' | '.join(heads)} |", f"|{'---|' * 5}"]
    for name, row in (("", first["teacher"]), *first["methods"].items()):
        other = second["methods"][name] if name else second["teacher"]
        cells = [_mean(each[key]) for each in (row, other) for key in ("old_success", "new_success")]
        lines.append(f"| {row['title']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cost(results: Results) -> str:
    """Return old success (and the time of a run against plain) by anchors a step and steps between."""
    pattern = re.compile(r"K = (\d+), (\d+) anchors")
    cells: dict[tuple[int, int], str] = {}
    for name, row in results["methods"].items():
        if match := pattern.fullmatch(name):
            ratio = row["time_ratio"]["mean"]
            old, new = row["old_success"]["mean"], row["new_success"]["mean"]
            cells[int(match[1]), int(match[2])] = f"{old:.3f} / {new:.2f}, × {ratio:.2f}"
    every, sizes = sorted({k for k, _ in cells}), sorted({b for _, b in cells})
    lines = [f"| | {' | '.join(f'{size} anchors' for size in sizes)} |", f"|{'---|' * (len(sizes) + 1)}"]
    lines += [f"| K = {k} | {' | '.join(cells[k, size] for size in sizes)} |" for k in every]
    return "\n".join(lines)


def points(results: Results) -> dict[tuple[str, str, int, str], tuple[float, float]]:
    """Return drift and lost success by method, split, seed and old task; methods that are the same run count once."""
    before = {(each["problem"], each["seed"]): each["success_by_task"] for each in results["teacher"]["runs"]}
    return {
        (row["title"], each["problem"], each["seed"], task): (
            drift,
            before[each["problem"], each["seed"]][task] - each["stages"][0]["success_by_task"][task],
        )
        for row in {row["command"]: row for row in results["methods"].values()}.values()
        for each in row["runs"]
        for task, drift in each["stages"][0]["drift_by_task"].items()
    }


# Ends of the drifts that are counted together.
BINS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, math.inf)


def prediction(results: Results) -> str:
    """Return how well drift ranks lost success, and what is lost at which drift."""
    found = points(results)
    runs, tasks = _grouped(found, lambda key: key[:3]), _grouped(found, lambda key: (key[1], key[3]))
    means = [tuple(map(statistics.fmean, zip(*pairs, strict=True))) for pairs in runs]
    by_task = statistics.fmean(map(_spearman, tasks))
    lines = [
        "| points | n | Spearman |",
        "|---|---|---|",
        f"| every old task of every run | {len(found)} | {_spearman(found.values()):.2f} |",
        f"| every run, mean over its old tasks | {len(means)} | {_spearman(means):.2f} |",
        f"| one old task at a time, mean over {len(tasks)} | {len(tasks[0])} each | {by_task:.2f} |",
        "",
        "| drift, σ | points | lost on average | lost more than a fifth |",
        "|---|---|---|---|",
    ]
    for low, high in pairwise(BINS):
        lost = [loss for drift, loss in found.values() if low <= drift < high]
        share = sum(loss > 0.2 for loss in lost) / len(lost)
        name = f"{low} to {high}" if math.isfinite(high) else f"from {low}"
        lines.append(f"| {name} | {len(lost)} | {statistics.fmean(lost):.3f} | {100 * share:.0f} % |")
    return "\n".join(lines)


def tolerance(results: Results) -> str:
    """Return for each old task how much drift it forgave and how little it did not."""
    by_task: dict[str, list[tuple[float, float]]] = {}
    for (_, _, _, task), pair in points(results).items():
        by_task.setdefault(task, []).append(pair)
    lines = [
        "| old task | runs that lost more than a fifth | least drift of those, σ | largest drift of the others, σ |",
        "|---|---|---|---|",
    ]
    for task, pairs in by_task.items():
        bad, good = ([drift for drift, loss in pairs if (loss > 0.2) is lost] for lost in (True, False))
        lines.append(f"| {task} | {len(bad)} of {len(pairs)} | {min(bad):.2f} | {max(good):.2f} |")
    return "\n".join(lines)


def _grouped(found: dict[Any, tuple[float, float]], by: Callable[[Any], Any]) -> list[list[tuple[float, float]]]:
    groups: dict[Any, list[tuple[float, float]]] = {}
    for key, pair in found.items():
        groups.setdefault(by(key), []).append(pair)
    return list(groups.values())


def _spearman(pairs: Iterable[tuple[float, ...]]) -> float:
    drifts, lost = zip(*pairs, strict=True)
    return float(spearmanr(drifts, lost).statistic)


# Each table's results, and what makes it of them.
TABLES: dict[str, tuple[tuple[str, ...], Callable[..., str]]] = {
    "compare": (("compare",), table),
    "summary": (("compare",), summary),
    "by_split": (("compare",), by_split),
    "paired": (("compare",), paired),
    "strengths": (("compare",), strengths),
    "replay": (("replay",), short),
    "door_lock": (("door_lock",), short),
    "sequence": (("sequence",), sequence),
    "sequence_narrow": (("sequence_narrow",), sequence),
    "ablation": (("ablation",), short),
    "controller": (("controller_drawer", "controller_window"), on_two),
    "candidates": (("candidates_faucet", "candidates_plate"), on_two),
    "cost": (("cost",), cost),
    "t8": (("t8",), short),
    "prediction": (("compare",), prediction),
    "tolerance": (("compare",), tolerance),
}


def tables() -> dict[str, str]:
    """Return every table whose results are there, by the name it has in the documents."""
    return {
        name: make(*map(read, sources))
        for name, (sources, make) in TABLES.items()
        if all((RESULTS / f"{source}.json").is_file() for source in sources)
    }


def write(found: dict[str, str]) -> None:
    """Put the tables between their marks in the documents."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name, content in found.items():
            begin, end = f"<!-- table:{name} -->", f"<!-- /table:{name} -->"
            if begin not in text:
                continue
            head, _, rest = text.partition(begin)
            _, _, tail = rest.partition(end)
            text = f"{head}{begin}\n{content}\n{end}{tail}"
        partial = page.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        shutil.move(partial, page)


def main() -> None:
    """Run, print, write."""
    options = parser(__doc__)
    options.add_argument("--run", type=Path, metavar="DIR", help="run everything first, in this folder")
    options.add_argument("--write", action="store_true", help="put the tables into the documents")
    given = options.parse_args()
    if given.run is not None:
        run(given.run)
    found = tables()
    for name, content in found.items():
        print(f"\n{name}\n{content}")
    if given.write:
        write(found)
    write_figures(given.json, found)


if __name__ == "__main__":
    main()
