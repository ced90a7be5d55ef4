# SPDX-License-Identifier: Apache-2.0
"""Hidden states of any torch module, and their pooling. Knows no policy and never imports LeRobot.

>>> import torch
>>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
>>> with capture(net, [TapPoint("0")]) as captured:
...     net(torch.ones(2, 4))  # the last two modules do not run
>>> captured.values[0].shape
torch.Size([2, 3])
"""

from lerobot_craft.taps._capture import Captured, TapPoint, capture
from lerobot_craft.taps._layout import Segment, TokenLayout, record_segments
from lerobot_craft.taps._mode import eval_mode
from lerobot_craft.taps._pooling import POOLINGS, Pooling, left_aligned, pool
from lerobot_craft.taps._reach import parameters_reached
from lerobot_craft.taps._resolve import resolve_module

__all__ = [
    "POOLINGS",
    "Captured",
    "Pooling",
    "Segment",
    "TapPoint",
    "TokenLayout",
    "capture",
    "eval_mode",
    "left_aligned",
    "parameters_reached",
    "pool",
    "record_segments",
    "resolve_module",
]
