# SPDX-License-Identifier: Apache-2.0
"""Whether a policy really has its checkpoint's weights; some LeRobot types go on with random ones."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from lerobot_craft.errors import UsageError

_WEIGHTS = "model.safetensors"
_PROBES = 16


def check_loaded(policy: nn.Module, path: str | Path) -> None:
    """Compare some of a policy's tensors with its checkpoint folder; a Hub repository is left alone.

    Args:
        policy: As LeRobot loaded it.
        path: Where it was loaded from.

    Raises:
        UsageError: If the file cannot be read, or most tensors differ from it.
    """
    file = Path(path) / _WEIGHTS
    if not file.is_file():
        return
    state = policy.state_dict()
    try:
        with safe_open(file, framework="pt") as saved:
            names = sorted(set(saved.keys()) & set(state))
            probes = names[:: max(1, len(names) // _PROBES)]
            # A run that diverged saves NaN, which is not equal to itself.
            equal = [
                torch.equal(saved.get_tensor(name).to(state[name]).nan_to_num(), state[name].nan_to_num())
                for name in probes
            ]
    except SafetensorError as error:
        raise UsageError(f"`{file}` cannot be read ({error}): copy the checkpoint again.") from error
    # Not all: a type may tie or pad a tensor while it loads.
    if 2 * sum(equal) < len(equal):
        raise UsageError(
            f"{len(equal) - sum(equal)} of {len(equal)} tensors compared differ from `{file}`: LeRobot could not load "
            "it and went on with random weights; its message stands above. Copy the checkpoint again."
        )
