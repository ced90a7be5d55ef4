# SPDX-License-Identifier: Apache-2.0
"""A torchvision ResNet with an eighth of the channels, for tiny ACT and Diffusion checkpoints.

LeRobot picks the backbone by attribute name from `torchvision.models`, and the smallest one there has 11 M
parameters. `register()` adds ours under the name checkpoints use. Not meant to see well.
"""

from __future__ import annotations

from typing import Any

import torchvision.models
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

NAME = "resnet_tiny"
SHRINK = 8


class TinyResNet(ResNet):
    """ResNet-10 with 8, 16, 32 and 64 channels, about 0.08 M parameters."""

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401 - torchvision's own arguments, passed through
        super().__init__(BasicBlock, [1, 1, 1, 1], **kwargs)
        stem = 64 // SHRINK
        self.conv1 = nn.Conv2d(3, stem, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = self._norm_layer(stem)
        # LeRobot reads the width of the last feature map from here; the layer itself is never used.
        self.fc = nn.Linear(512 // SHRINK, 1)

    def _make_layer(self, block: type[BasicBlock], planes: int, *args: Any, **kwargs: Any) -> nn.Sequential:  # noqa: ANN401 - as above
        # torchvision's constructor has just set the width of the stem it builds, which is not ours.
        if planes == 64:
            self.inplanes = 64 // SHRINK
        layer: nn.Sequential = super()._make_layer(block, planes // SHRINK, *args, **kwargs)
        return layer


def resnet_tiny(*, weights: None = None, **kwargs: Any) -> TinyResNet:  # noqa: ANN401 - torchvision's own arguments
    """Build the backbone as torchvision's builders do.

    Args:
        weights: Only None; there are no pretrained weights.
        **kwargs: Arguments of `torchvision.models.resnet.ResNet`.
    """
    if weights is not None:
        raise ValueError(f"`weights` is {weights!r}, expected None: {NAME} has no pretrained weights.")
    return TinyResNet(**kwargs)


def register() -> None:
    """Make `torchvision.models.resnet_tiny` exist, so that LeRobot finds it by name."""
    setattr(torchvision.models, NAME, resnet_tiny)
