# SPDX-License-Identifier: Apache-2.0
"""What a report comes to, in a sentence with its numbers; judges by intervals and draws nothing."""

from typing import NamedTuple

from lerobot_craft.report._model import CheckpointDrift, Comparison, Drift, Estimate, Material, Method, TrainingRun
from lerobot_craft.report._text import Text, measured, number, rate, rates

# Below this, a difference in success is noise in our own measurements.
NOISE = 0.02


class Tile(NamedTuple):
    """A number worth a large font.

    Attributes:
        amount: The number.
        words: What it is.
        mood: `good`, `bad` or nothing.
    """

    amount: str
    words: Text
    mood: str = ""


class Verdict(NamedTuple):
    """What one source comes to.

    Attributes:
        sentence: In one sentence.
        asides: What else to know, each a sentence.
        tiles: The numbers.
    """

    sentence: Text
    asides: tuple[Text, ...] = ()
    tiles: tuple[Tile, ...] = ()


def verdicts(material: Material) -> list[Verdict]:
    """Return the verdicts, the most telling first: runs by themselves only where success was not measured."""
    found = [_of_comparison(one) for one in material.comparisons]
    found += [_of_drift(one) for one in material.drifts]
    return found + [_of_run(run) for run in material.runs if material.is_alone(run)]


def judged(comparison: Comparison) -> Method | None:
    """Return the method a comparison's verdict is about: CRaFT, or the best where it was not measured, if any was."""
    methods = {method.name: method for method in comparison.methods if method.get("old_success") is not None}
    best = max(
        methods.values(),
        key=lambda one: (one.mean("old_success") or 0.0) + (one.mean("new_success") or 0.0),
        default=None,
    )
    return methods.get("craft", best)


def baseline(comparison: Comparison) -> Method | None:
    """Return plain fine-tuning, as LeRobot does it where that was compared."""
    methods = {method.name: method for method in comparison.methods if method.get("old_success") is not None}
    return methods.get("lerobot", methods.get("plain"))


def kept(method: Method, teacher: Method | None) -> str | None:
    """Return whether the old tasks are `kept`, kept in `part` or `lost`; None where that is not known."""
    old, before = method.get("old_success"), None if teacher is None else teacher.get("old_success")
    if old is None or before is None:
        return None
    reached = max(old.mean, old.high if old.high is not None else old.mean)
    if old.mean >= before.mean - NOISE or (reached >= before.mean and old.mean >= 0.9 * before.mean):
        return "kept"
    return "part" if old.mean >= 0.5 * before.mean else "lost"


PLAIN = {
    "lerobot": Text("fine-tuning as LeRobot does it", "按 LeRobot 的方式微调"),
    "plain": Text("plain fine-tuning", "普通微调"),
}
OPENINGS = {
    "kept": Text("The old tasks are kept", "旧任务得到保持"),
    "part": Text("Part of the old tasks is lost", "旧任务丢失了一部分"),
    "lost": Text("The old tasks are forgotten", "旧任务被遗忘"),
}


def _of_comparison(comparison: Comparison) -> Verdict:
    method, teacher, plain = judged(comparison), comparison.teacher, baseline(comparison)
    if method is None:
        words = Text(
            "No fine-tuning is measured yet: the teacher succeeds in **{old}** of old-task episodes.",
            "尚未测量任何微调：教师在旧任务上的成功率为 **{old}**。",
        )
        return Verdict(words.fill(old=_success(None if teacher is None else teacher.get("old_success"))))
    state = kept(method, teacher)
    parts = Text(
        "**{m}** succeeds in **{old}** of old-task episodes and **{new}** of new ones",
        "**{m}** 的旧任务成功率为 **{old}**，新任务为 **{new}**",
    ).fill(m=method.title, old=_success(method.get("old_success")), new=_success(method.get("new_success")))
    if teacher is not None and teacher.get("old_success") is not None:
        words = Text("; the teacher had {old} on the old ones", "；教师在旧任务上为 {old}")
        parts = _joined(parts, words.fill(old=rate(teacher.mean("old_success"))))
    if plain is not None and plain is not method:
        words = Text(
            ", and {p} keeps {old} with {new} on the new ones",
            "，{p}后旧任务为 {old}、新任务为 {new}",
        )
        numbers = {"old": rate(plain.mean("old_success")), "new": rate(plain.mean("new_success"))}
        parts = _joined(parts, words.fill(p=PLAIN[plain.name], **numbers))
    opening = Text("", "") if state is None else _joined(OPENINGS[state], Text(": ", "："))
    sentence = _joined(_joined(opening, parts), Text(".", "。"))
    return Verdict(sentence, _asides(comparison, method, plain), _tiles(method, teacher, plain, state))


def _asides(comparison: Comparison, method: Method, plain: Method | None) -> tuple[Text, ...]:
    asides = []
    own, other = method.get("new_success"), None if plain is None else plain.get("new_success")
    if plain is not None and plain is not method and own is not None and other is not None and _below(own, other):
        words = Text(
            "It costs plasticity here: {m} reaches {own} on the new tasks, {p} {other}.",
            "这里付出了可塑性的代价：{m} 在新任务上为 {own}，{p}为 {other}。",
        )
        asides.append(words.fill(m=method.title, own=rate(own.mean), p=PLAIN[plain.name], other=rate(other.mean)))
    best = [one for one in comparison.methods if one.get("old_success") is not None]
    first = max(best, key=lambda one: one.mean("old_success") or 0.0)
    if first is not method and (first.mean("old_success") or 0) > (method.mean("old_success") or 0):
        words = Text("Highest on the old tasks: {m}, {old} (new {new}).", "旧任务最高的是 {m}：{old}（新任务 {new}）。")
        asides.append(
            words.fill(m=first.title, old=rate(first.mean("old_success")), new=rate(first.mean("new_success")))
        )
    asides.append(_basis(comparison))
    if not comparison.complete:
        asides.append(
            Text(
                "Not all methods are finished: this is what there is so far.",
                "并非所有方法都已完成：这里是目前已有的结果。",
            )
        )
    return tuple(asides)


def _basis(comparison: Comparison) -> Text:
    """Return what the numbers rest on."""
    episodes = "–" if comparison.episodes is None else str(comparison.episodes)
    splits, seeds = max(len(comparison.problems), 1), max(len(comparison.seeds), 1)
    words = Text(
        "{splits} of old and new tasks, {seeds}, {episodes} episodes per task; ranges in parentheses are 95 % "
        "intervals.",
        "{splits} 种新旧任务划分，{seeds} 个训练种子，每个任务 {episodes} 个回合；括号内为 95 % 区间。",
    )
    return words.fill(
        splits=Text(_plural(splits, "split"), str(splits)),
        seeds=Text(_plural(seeds, "training seed"), str(seeds)),
        episodes=episodes,
    )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _tiles(method: Method, teacher: Method | None, plain: Method | None, state: str | None) -> tuple[Tile, ...]:
    mood = {"kept": "good", "lost": "bad"}.get(state or "", "")
    tiles = [Tile(rate(method.mean("old_success")), Text("old tasks, {m}", "旧任务，{m}").fill(m=method.title), mood)]
    if teacher is not None:
        tiles.append(Tile(rate(teacher.mean("old_success")), Text("old tasks, teacher", "旧任务，教师")))
    tiles.append(Tile(rate(method.mean("new_success")), Text("new tasks, {m}", "新任务，{m}").fill(m=method.title)))
    if plain is not None and plain is not method:
        words = Text("old tasks, {p}", "旧任务，{p}").fill(p=PLAIN[plain.name])
        lost = kept(plain, teacher) == "lost"
        tiles.append(Tile(rate(plain.mean("old_success")), words, "bad" if lost else ""))
    ratio = method.mean("time_ratio")
    if ratio is not None and plain is not method:
        tiles.append(Tile(f"{ratio:.1f}×", Text("training time of plain", "相对普通微调的训练时间")))
    return tuple(tiles)


def _of_drift(drift: Drift) -> Verdict:
    known = [one for one in drift.checkpoints if one.action is not None]
    chosen = next((one for one in drift.checkpoints if one.path == drift.keep), None)
    best = chosen or min(known, key=lambda one: _mean(one.action), default=drift.checkpoints[0])
    limit = (
        Text("", "")
        if drift.max_drift is None
        else Text(", against a limit of {limit}", "，上限为 {limit}").fill(limit=number(drift.max_drift))
    )
    if drift.max_drift is not None and drift.keep is None:
        opening = Text(
            "No checkpoint stays within the limit: the closest, **{c}**, acts {d} away from its teacher",
            "没有检查点在上限之内：最接近的 **{c}** 与教师的动作相差 {d}",
        )
    elif len(drift.checkpoints) > 1:
        opening = Text("Keep **{c}**: it acts {d} away from its teacher", "建议保留 **{c}**：与教师的动作相差 {d}")
    else:
        opening = Text("**{c}** acts {d} away from its teacher", "**{c}** 与教师的动作相差 {d}")
    distance = Text("**{d}** action standard deviations", " **{d}** 个动作标准差").fill(d=_interval(best.action))
    sentence = _joined(_joined(opening.fill(c=short(best), d=distance), limit), Text(".", "。"))
    asides = []
    if best.language is not None and best.language.ignores:
        words = Text("{c} ignores the instruction.", "{c} 不再理会指令。")
        asides.append(words.fill(c=short(best)))
    looked = Text("Measured on {f} frames of {e} episodes.", "在 {e} 个回合的 {f} 帧上测得。")
    asides.append(looked.fill(f=_count(drift.frames), e=_count(drift.episodes)))
    return Verdict(sentence, tuple(asides))


def short(checkpoint: CheckpointDrift) -> str:
    """Return what to call a checkpoint: its own folder's name, without what every checkpoint has."""
    parts = [part for part in checkpoint.path.split("/") if part not in ("pretrained_model", "checkpoints", "")]
    return "/".join(parts[-2:]) or checkpoint.path


def _of_run(run: TrainingRun) -> Verdict:
    steps = run.steps
    finished = steps is None or run.last_step >= steps - (steps % max(_log_every(run), 1))
    losses = run.series("loss")
    first, last = losses[0][1] if losses else None, losses[-1][1] if losses else None
    opening = Text("**{r}** finished its {s} steps", "**{r}** 完成了 {s} 步").fill(
        r=run.title, s=steps or run.last_step
    )
    if not finished:
        opening = Text("**{r}** stopped at step {l} of {s}", "**{r}** 停在第 {l} 步（共 {s} 步）")
        opening = opening.fill(r=run.title, l=run.last_step, s=steps)
    course = Text("; its task loss went from {a} to {b}", "；任务损失从 {a} 到 {b}").fill(
        a=number(first), b=number(last)
    )
    sentence = _joined(_joined(opening, course), _budget(run))
    asides = [] if run.retains else [NOTHING_RETAINED]
    if run.best is not None and isinstance(run.best.get("step"), int):
        words = Text("Best checkpoint within budget: step {s}.", "预算内的最佳检查点：第 {s} 步。")
        asides.append(words.fill(s=run.best["step"]))
    if run.damaged_lines:
        words = Text("{n} line(s) of its log could not be read and are left out.", "日志中有 {n} 行无法读取，已略去。")
        asides.append(words.fill(n=run.damaged_lines))
    return Verdict(sentence, tuple(asides))


NOTHING_RETAINED = Text(
    "Nothing was retained in this run, and a training log cannot say what was forgotten: `lerobot-craft drift` can.",
    "这次训练没有任何保持项，而训练日志无法说明遗忘了什么：请用 `lerobot-craft drift`。",
)


def _budget(run: TrainingRun) -> Text:
    loss, budget = run.last("craft/retention_loss"), run.last("craft/epsilon")
    if loss is None or budget is None:
        return Text(".", "。")
    violated = run.last("craft/violation")
    above = violated > 0 if violated is not None else loss > budget
    words = (
        Text(
            "; retention ends **over budget** (L_ret {l}, ε {e}, λ {m}).",
            "；保持损失最终**超出预算**（L_ret {l}，ε {e}，λ {m}）。",
        )
        if above
        else Text(
            "; retention ends **within budget** (L_ret {l}, ε {e}, λ {m}).",
            "；保持损失最终**在预算之内**（L_ret {l}，ε {e}，λ {m}）。",
        )
    )
    return words.fill(l=number(loss), e=number(budget), m=number(run.last("craft/multiplier")))


def _log_every(run: TrainingRun) -> int:
    steps = [int(row["step"]) for row in run.rows]
    return steps[0] if len(steps) < 2 else steps[1] - steps[0]


def _joined(one: Text, two: Text) -> Text:
    return Text(one.en + two.en, one.zh + two.zh)


def _below(one: Estimate, other: Estimate) -> bool:
    if one.high is not None and other.low is not None:
        return one.high < other.low
    return one.mean < other.mean - NOISE


def _mean(estimate: Estimate | None) -> float:
    return float("inf") if estimate is None else estimate.mean


def _success(estimate: Estimate | None) -> str:
    return "–" if estimate is None else rates(estimate.mean, estimate.low, estimate.high)


def _interval(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    mean, interval = measured(estimate.mean, estimate.low, estimate.high)
    return f"{mean} ({interval})" if interval else mean


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
