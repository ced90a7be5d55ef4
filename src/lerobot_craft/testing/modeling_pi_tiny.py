# SPDX-License-Identifier: Apache-2.0
"""pi0, pi05 and pi0_fast with small networks: only the constructors are ours.

Each class here builds the same parts as its parent in small and inherits every other method, so forward,
loss, sampling, decoding and checkpoint loading are LeRobot's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lerobot.policies.pi0.modeling_pi0 import PaliGemmaWithExpertModel as PI0Backbone
from lerobot.policies.pi0.modeling_pi0 import PI0Policy, PI0Pytorch
from lerobot.policies.pi0_fast.modeling_pi0_fast import PI0FastPaliGemma, PI0FastPolicy, PI0FastPytorch
from lerobot.policies.pi05.modeling_pi05 import PaliGemmaWithExpertModel as PI05Backbone
from lerobot.policies.pi05.modeling_pi05 import PI05Policy, PI05Pytorch
from lerobot.policies.pi_gemma import PaliGemmaForConditionalGenerationWithPiGemma, PiGemmaForCausalLM
from lerobot.policies.pretrained import PreTrainedPolicy
from torch import nn
from transformers import AutoProcessor, AutoTokenizer, GemmaConfig, PaliGemmaConfig

from lerobot_craft.testing.configuration_pi_tiny import (
    TinyPI0Config,
    TinyPI0FastConfig,
    TinyPI05Config,
    TinySizes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HEADS = 8


def _gemma(sizes: TinySizes, width: int, adarms: bool) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 1,
        "head_dim": sizes.head_dim,
        "num_hidden_layers": sizes.depth,
        "vocab_size": sizes.vocab_size,
        "hidden_activation": "gelu_pytorch_tanh",
        "use_adarms": adarms,
        "adarms_cond_dim": width if adarms else None,
    }


def _paligemma(config: Any) -> PaliGemmaForConditionalGenerationWithPiGemma:  # noqa: ANN401 - any of three configs
    vision = {
        "hidden_size": config.vision_width,
        "intermediate_size": 2 * config.vision_width,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": config.image_resolution[0],
        "patch_size": config.patch_size,
        "projection_dim": config.vlm_width,
    }
    text = {"model_type": "gemma", **_gemma(config, config.vlm_width, adarms=False)}
    return PaliGemmaForConditionalGenerationWithPiGemma(
        PaliGemmaConfig(vision_config=vision, text_config=text, projection_dim=config.vlm_width)
    )


def _build_with_expert(backbone: Any, config: Any, adarms: bool) -> None:  # noqa: ANN401 - either backbone class
    nn.Module.__init__(backbone)
    backbone.freeze_vision_encoder = config.freeze_vision_encoder
    backbone.train_expert_only = config.train_expert_only
    backbone.paligemma = _paligemma(config)
    backbone.gemma_expert = PiGemmaForCausalLM(GemmaConfig(**_gemma(config, config.expert_width, adarms)))
    backbone.gemma_expert.model.embed_tokens = None
    backbone.to_bfloat16_for_selected_params(config.dtype)
    backbone._set_requires_grad()


class _TinyPI0Backbone(PI0Backbone):
    def __init__(self, config: TinyPI0Config) -> None:
        _build_with_expert(self, config, adarms=False)


class _TinyPI05Backbone(PI05Backbone):
    def __init__(self, config: TinyPI05Config) -> None:
        _build_with_expert(self, config, adarms=True)


class _TinyPI0FastBackbone(PI0FastPaliGemma):
    def __init__(self, config: TinyPI0FastConfig) -> None:
        nn.Module.__init__(self)
        self.paligemma = _paligemma(config)
        self.to_bfloat16_for_selected_params(config.dtype)


def _start_core(core: Any, config: Any, rtc_processor: Any, backbone: Callable[[Any], nn.Module]) -> None:  # noqa: ANN401 - any of three cores
    nn.Module.__init__(core)
    core.config = config
    core.rtc_processor = rtc_processor
    core.paligemma_with_expert = backbone(config)
    core.gradient_checkpointing_enabled = False


class TinyPI0Pytorch(PI0Pytorch):
    """The core model of pi0, small."""

    def __init__(self, config: TinyPI0Config, rtc_processor: Any = None) -> None:  # noqa: ANN401
        _start_core(self, config, rtc_processor, _TinyPI0Backbone)
        width = config.expert_width
        self.action_in_proj = nn.Linear(config.max_action_dim, width)
        self.action_out_proj = nn.Linear(width, config.max_action_dim)
        self.state_proj = nn.Linear(config.max_state_dim, width)
        self.action_time_mlp_in = nn.Linear(2 * width, width)
        self.action_time_mlp_out = nn.Linear(width, width)


class TinyPI05Pytorch(PI05Pytorch):
    """The core model of pi05, small."""

    def __init__(self, config: TinyPI05Config, rtc_processor: Any = None) -> None:  # noqa: ANN401
        _start_core(self, config, rtc_processor, _TinyPI05Backbone)
        width = config.expert_width
        self.action_in_proj = nn.Linear(config.max_action_dim, width)
        self.action_out_proj = nn.Linear(width, config.max_action_dim)
        self.time_mlp_in = nn.Linear(width, width)
        self.time_mlp_out = nn.Linear(width, width)


class TinyPI0FastPytorch(PI0FastPytorch):
    """The core model of pi0_fast, small."""

    def __init__(self, config: TinyPI0FastConfig, rtc_processor: Any, paligemma_tokenizer: Any) -> None:  # noqa: ANN401
        _start_core(self, config, rtc_processor, _TinyPI0FastBackbone)
        self._paligemma_tokenizer = paligemma_tokenizer


def _start_policy(policy: Any, config: Any) -> None:  # noqa: ANN401 - any of three policies
    PreTrainedPolicy.__init__(policy, config)
    config.validate_features()
    policy.config = config
    policy.init_rtc_processor()


def _finish_policy(policy: Any) -> None:  # noqa: ANN401 - any of three policies
    if policy.config.gradient_checkpointing:
        policy.model.gradient_checkpointing_enable()
    policy.model.to(policy.config.device)
    policy.reset()


class TinyPI0Policy(PI0Policy):
    """pi0 with small networks."""

    config_class = TinyPI0Config
    name = "pi0_tiny"

    def __init__(self, config: TinyPI0Config, **_: Any) -> None:  # noqa: ANN401 - LeRobot passes dataset facts
        _start_policy(self, config)
        self.model = TinyPI0Pytorch(config, self.rtc_processor)
        _finish_policy(self)


class TinyPI05Policy(PI05Policy):
    """pi05 with small networks."""

    config_class = TinyPI05Config
    name = "pi05_tiny"

    def __init__(self, config: TinyPI05Config, **_: Any) -> None:  # noqa: ANN401 - as above
        _start_policy(self, config)
        self.model = TinyPI05Pytorch(config, self.rtc_processor)
        _finish_policy(self)


class TinyPI0FastPolicy(PI0FastPolicy):
    """pi0_fast with a small network and local tokenizers."""

    config_class = TinyPI0FastConfig
    name = "pi0_fast_tiny"

    def __init__(self, config: TinyPI0FastConfig, **_: Any) -> None:  # noqa: ANN401 - as above
        _start_policy(self, config)
        # The FAST processor is a file in the checkpoint that make_tiny wrote; LeRobot runs it the same way.
        self.action_tokenizer = AutoProcessor.from_pretrained(config.action_tokenizer_name, trust_remote_code=True)
        self._paligemma_tokenizer = AutoTokenizer.from_pretrained(
            config.text_tokenizer_name, add_eos_token=True, add_bos_token=False
        )
        self.model = TinyPI0FastPytorch(config, self.rtc_processor, self._paligemma_tokenizer)
        _finish_policy(self)
