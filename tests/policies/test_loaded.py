# SPDX-License-Identifier: Apache-2.0
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lerobot_craft.errors import UsageError


@pytest.mark.parametrize("policy_type", ["act", "pi0_fast"])
def test_a_truncated_checkpoint_is_no_random_teacher(
    policy_type: str, make_tiny_once: Callable[[str], object], tmp_path: Path
) -> None:
    """LeRobot prints a line for pi0_fast and goes on with random weights."""
    from lerobot_craft.caching._teacher import load_teacher

    folder = tmp_path / "policy"
    shutil.copytree(make_tiny_once(policy_type).policy, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(UsageError, match=r"model\.safetensors"):
        load_teacher(str(folder))


def test_random_weights_beside_a_good_file_are_refused(make_tiny_once: Callable[[str], object]) -> None:
    from lerobot_craft.caching._teacher import load_teacher
    from lerobot_craft.policies import check_loaded
    from lerobot_craft.testing import add_noise_

    path = make_tiny_once("act").policy
    teacher = load_teacher(str(path))
    check_loaded(teacher.policy, path)
    add_noise_(teacher.policy, 0.5, seed=0)
    with pytest.raises(UsageError, match="random weights"):
        check_loaded(teacher.policy, path)
