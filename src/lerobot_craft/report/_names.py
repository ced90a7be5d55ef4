# SPDX-License-Identifier: Apache-2.0
"""Names, colours and markers of the methods, the same in every figure of every report; measures nothing."""

from typing import NamedTuple

from lerobot_craft.report._text import Text, same


class Look(NamedTuple):
    """How a method is drawn.

    Attributes:
        colour: Index of one of the page's colours, which people with any colour vision can tell apart.
        marker: `circle`, `square`, `triangle` or `diamond`: two methods never share both.
    """

    colour: int
    marker: str


COLOURS = 8
# CRaFT's own colour comes last: nobody else should be taken for it.
UNKNOWN_FIRST = (3, 6, 4, 2, 7, 1, 5, 0)
MARKERS = ("circle", "square", "triangle", "diamond")

_KNOWN: dict[str, tuple[Text, Look]] = {
    "teacher": (Text("teacher, before", "教师（微调前）"), Look(5, "circle")),
    "craft": (same("CRaFT"), Look(0, "circle")),
    "lerobot": (Text("plain, as LeRobot does it", "普通微调（LeRobot 原样）"), Look(1, "square")),
    "plain": (Text("plain, teacher's statistics", "普通微调（保留教师统计量）"), Look(2, "triangle")),
    "replay": (Text("replay (old labels)", "经验回放（旧标签）"), Look(3, "diamond")),
    "hidden": (Text("CRaFT, hidden", "CRaFT（隐藏状态）"), Look(4, "circle")),
    "action": (Text("CRaFT, action", "CRaFT（动作）"), Look(6, "square")),
    "prompts": (Text("CRaFT, no old data", "CRaFT（无旧数据）"), Look(6, "triangle")),
    "seed": (Text("CRaFT as first specified", "CRaFT（最初设定）"), Look(7, "circle")),
    "ewc": (same("EWC"), Look(7, "triangle")),
    "l2sp": (same("L2-SP"), Look(2, "diamond")),
    "lwf": (Text("LwF (fixed λ)", "LwF（固定 λ）"), Look(4, "square")),
    "agem": (same("A-GEM"), Look(3, "triangle")),
    "merge": (Text("interpolation", "权重插值"), Look(5, "square")),
    "freeze": (Text("frozen parts", "部分冻结"), Look(1, "diamond")),
    "lora": (same("LoRA"), Look(6, "diamond")),
}


def title(name: str, given: str | None = None) -> Text:
    """Return a method's name for people.

    Args:
        name: Its name on the command line.
        given: What its file calls it, for methods this version does not know.
    """
    if name not in _KNOWN:
        return same(given or name)
    known = _KNOWN[name][0]
    # The file speaks English; what it says of its own method goes first.
    return Text(given or known.en, known.zh)


class Palette:
    """Gives each method its look; unknown ones get the looks nobody has yet, in the order they are asked for."""

    def __init__(self) -> None:
        self._looks = {name: look for name, (_, look) in _KNOWN.items()}
        self._free = [
            Look(colour, marker)
            for marker in reversed(MARKERS)
            for colour in UNKNOWN_FIRST
            if Look(colour, marker) not in self._looks.values()
        ]

    def __getitem__(self, name: str) -> Look:
        if name not in self._looks:
            count = len(self._looks) - len(_KNOWN)
            self._looks[name] = self._free[count % len(self._free)]
        return self._looks[name]
