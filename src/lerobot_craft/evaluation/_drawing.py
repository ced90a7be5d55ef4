# SPDX-License-Identifier: Apache-2.0
"""A Meta-World state as a small drawing, from above and from the side; needs no OpenGL and shows no meshes."""

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from lerobot_craft.evaluation._tasks import Vector

SIDE = 160
# Metres that fit into a drawing: the robot's whole reach.
X, Y, Z = (-0.5, 0.5), (0.2, 1.2), (-0.1, 0.9)
# Where the state holds positions: of the hand, of the object, of the goal.
HAND, OBJECT, GOAL = slice(0, 3), slice(4, 7), slice(36, 39)
COLOURS = {"hand": (40, 90, 200), "object": (200, 60, 40), "goal": (30, 150, 70)}


def draw_state(state: Vector) -> npt.NDArray[np.uint8]:
    """Return the drawing of one state [160, 320, 3]: blue hand, red object, green goal."""
    canvas = Image.new("RGB", (2 * SIDE, SIDE), (248, 248, 248))
    pen = ImageDraw.Draw(canvas)
    pen.line((SIDE, 0, SIDE, SIDE), fill=(200, 200, 200))
    # A closed gripper is a smaller dot.
    radii = {"goal": 8.0, "object": 6.0, "hand": 3.0 + 3.0 * float(np.clip(state[3], 0.0, 1.0))}
    for name, part in (("goal", GOAL), ("object", OBJECT), ("hand", HAND)):
        x, y, z = (float(value) for value in state[part])
        for left, across, up in ((0, (x, X), (y, Y)), (SIDE, (y, Y), (z, Z))):
            column, row = left + _place(*across), SIDE - _place(*up)
            box = (column - radii[name], row - radii[name], column + radii[name], row + radii[name])
            if name == "goal":
                pen.ellipse(box, outline=COLOURS[name], width=2)
            else:
                pen.ellipse(box, fill=COLOURS[name])
    return np.asarray(canvas)


def _place(value: float, limits: tuple[float, float]) -> float:
    low, high = limits
    return SIDE * min(1.0, max(0.0, (value - low) / (high - low)))
