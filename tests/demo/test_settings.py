# SPDX-License-Identifier: Apache-2.0
import pytest

from lerobot_craft.demo import DemoSettings
from lerobot_craft.errors import SettingsError


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        DemoSettings(old_tasks=("push", "push"), new_task="push", episodes=0, seed=-1)
    text = str(caught.value)
    for part in ("`--episodes=0`", "`--seed=-1`", "names push twice", "`--new_task=push` is one of the old tasks"):
        assert part in text


def test_no_old_task() -> None:
    with pytest.raises(SettingsError, match="`--old_tasks` names no task"):
        DemoSettings(old_tasks=())
