# SPDX-License-Identifier: Apache-2.0
"""Processors of the tiny pi policies: LeRobot's steps in LeRobot's order, with local tokenizers.

LeRobot's own factories for pi0 and pi05 name a tokenizer on the Hub, so they cannot be called offline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lerobot.policies.pi0.processor_pi0 import Pi0NewLineProcessor
from lerobot.policies.pi0_fast.processor_pi0_fast import Pi0FastPrepareStateAndLanguageTokenizerProcessorStep
from lerobot.policies.pi05.processor_pi05 import Pi05PrepareStateTokenizerProcessorStep
from lerobot.processor import (
    AbsoluteActionsProcessorStep,
    ActionTokenizerProcessorStep,
    ProcessorStepRegistry,
    RelativeActionsProcessorStep,
    TokenizerProcessorStep,
    make_default_policy_processor_steps,
    make_policy_processor_pipelines,
)

if TYPE_CHECKING:
    from lerobot_craft.testing.configuration_pi_tiny import (
        TinyPI0Config,
        TinyPI0FastConfig,
        TinyPI05Config,
    )

Stats = dict[str, dict[str, Any]]


@dataclass
@ProcessorStepRegistry.register(name="craft_local_action_tokenizer_processor")
class LocalActionTokenizerProcessorStep(ActionTokenizerProcessorStep):
    """LeRobot's action tokenizer step, saved with all its settings.

    LeRobot 0.6.1 leaves `fast_skip_tokens` and `paligemma_tokenizer_name` out of the saved processor, so a
    reloaded one would ask the Hub for PaliGemma's tokenizer and use its token ids.
    """

    def get_config(self) -> dict[str, Any]:
        """Everything the constructor needs to build this step again."""
        return {
            **super().get_config(),
            "fast_skip_tokens": self.fast_skip_tokens,
            "paligemma_tokenizer_name": self.paligemma_tokenizer_name,
        }


def make_pi0_tiny_pre_post_processors(config: TinyPI0Config, dataset_stats: Stats | None = None) -> tuple[Any, Any]:
    """Processors of `pi0_tiny`; see LeRobot's `make_pi0_pre_post_processors`."""
    steps = make_default_policy_processor_steps(config, dataset_stats)
    relative, absolute = _relative(config)
    before = [steps.rename_observations, steps.add_batch_dim, Pi0NewLineProcessor(), _text(config)]
    pipelines: tuple[Any, Any] = make_policy_processor_pipelines(
        input_steps=[*before, steps.to_device, relative, steps.normalize],
        output_steps=[steps.unnormalize, absolute, steps.to_cpu],
    )
    return pipelines


def make_pi05_tiny_pre_post_processors(config: TinyPI05Config, dataset_stats: Stats | None = None) -> tuple[Any, Any]:
    """Processors of `pi05_tiny`; see LeRobot's `make_pi05_pre_post_processors`."""
    steps = make_default_policy_processor_steps(config, dataset_stats)
    relative, absolute = _relative(config)
    before = [steps.rename_observations, steps.add_batch_dim, relative, steps.normalize]
    prompt = Pi05PrepareStateTokenizerProcessorStep(max_state_dim=config.max_state_dim)
    pipelines: tuple[Any, Any] = make_policy_processor_pipelines(
        input_steps=[*before, prompt, _text(config), steps.to_device],
        output_steps=[steps.unnormalize, absolute, steps.to_cpu],
    )
    return pipelines


def make_pi0_fast_tiny_pre_post_processors(
    config: TinyPI0FastConfig, dataset_stats: Stats | None = None
) -> tuple[Any, Any]:
    """Processors of `pi0_fast_tiny`; see LeRobot's `make_pi0_fast_pre_post_processors`."""
    steps = make_default_policy_processor_steps(config, dataset_stats)
    relative, absolute = _relative(config)
    before = [steps.rename_observations, steps.add_batch_dim, relative, steps.normalize]
    prompt = Pi0FastPrepareStateAndLanguageTokenizerProcessorStep(max_state_dim=config.max_state_dim)
    actions = LocalActionTokenizerProcessorStep(
        action_tokenizer_name=config.action_tokenizer_name,
        max_action_tokens=config.max_action_tokens,
        fast_skip_tokens=config.fast_skip_tokens,
        paligemma_tokenizer_name=config.text_tokenizer_name,
    )
    pipelines: tuple[Any, Any] = make_policy_processor_pipelines(
        input_steps=[*before, prompt, _text(config), actions, steps.to_device],
        output_steps=[steps.unnormalize, absolute, steps.to_cpu],
    )
    return pipelines


def _text(config: Any) -> TokenizerProcessorStep:  # noqa: ANN401 - any of three configs
    return TokenizerProcessorStep(
        tokenizer_name=config.tokenizer_path,
        max_length=config.tokenizer_max_length,
        padding_side="right",
        padding="max_length",
    )


def _relative(config: Any) -> tuple[RelativeActionsProcessorStep, AbsoluteActionsProcessorStep]:  # noqa: ANN401
    relative = RelativeActionsProcessorStep(
        enabled=config.use_relative_actions,
        exclude_joints=config.relative_exclude_joints,
        action_names=config.action_feature_names,
    )
    return relative, AbsoluteActionsProcessorStep(enabled=config.use_relative_actions, relative_step=relative)
