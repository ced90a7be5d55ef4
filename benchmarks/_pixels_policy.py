# SPDX-License-Identifier: Apache-2.0
"""The small VLA of the pixel benchmark: a VLM folder that SmolVLA builds its weights from, and its settings."""

from dataclasses import dataclass
from pathlib import Path

from _pixels_camera import IMAGE_SIZE
from _pixels_tasks import vocabulary

SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")
IMAGE_SPECIAL = {
    "fake_image_token": "<fake_token_around_image>",
    "image_token": "<image>",
    "global_image_token": "<global-img>",
    "end_of_utterance_token": "<end_of_utterance>",
}
CHUNK = 12
EXECUTED = 8


@dataclass(frozen=True)
class Size:
    """How large the policy is.

    Attributes:
        text_width: Width of the text model; the action expert has three quarters of it.
        text_layers: Depth of both.
        vision_width: Width of the vision tower.
        vision_layers: Its depth.
    """

    text_width: int = 256
    text_layers: int = 8
    vision_width: int = 192
    vision_layers: int = 4


SIZES = {
    "full": Size(),
    "small": Size(text_width=128, text_layers=4, vision_width=96, vision_layers=2),
    "tiny": Size(text_width=64, text_layers=2, vision_width=32, vision_layers=1),
}
PATCH = 8
# Pixel shuffle: so many patches along each side become one image token.
SHUFFLE = 2


def write_vlm(directory: Path, size: Size) -> None:
    """Write a SmolVLM config with its processor and a tokenizer of whole words, all local."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import (
        PreTrainedTokenizerFast,
        SmolVLMConfig,
        SmolVLMImageProcessor,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    words = list(dict.fromkeys([*SPECIAL, *IMAGE_SPECIAL.values(), *vocabulary()]))
    tokens = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))  # noqa: S106
    tokens.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        pad_token="<pad>",  # noqa: S106
        eos_token="<eos>",  # noqa: S106
        bos_token="<bos>",  # noqa: S106
        unk_token="<unk>",  # noqa: S106
        extra_special_tokens=IMAGE_SPECIAL,
    )
    text = {
        "model_type": "llama",
        "hidden_size": size.text_width,
        "intermediate_size": 3 * size.text_width,
        "num_hidden_layers": size.text_layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": size.text_width // 8,
        "vocab_size": len(words),
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
    }
    vision = {
        "hidden_size": size.vision_width,
        "intermediate_size": 4 * size.vision_width,
        "num_hidden_layers": size.vision_layers,
        "num_attention_heads": 4,
        "image_size": IMAGE_SIZE,
        "patch_size": PATCH,
    }
    image_token = tokenizer.convert_tokens_to_ids(IMAGE_SPECIAL["image_token"])
    config = SmolVLMConfig(
        text_config=text, vision_config=vision, scale_factor=SHUFFLE, image_token_id=image_token, pad_token_id=0
    )
    config.save_pretrained(directory)
    count = (IMAGE_SIZE // PATCH // SHUFFLE) ** 2
    processor = SmolVLMProcessor(SmolVLMImageProcessor(), tokenizer, SmolVLMVideoProcessor(), image_seq_len=count)
    processor.save_pretrained(directory)


def policy_flags(vlm: Path, size: Size, device: str) -> dict[str, object]:
    """Return the settings of a SmolVLA that is trained from scratch, all of it."""
    return {
        "type": "smolvla",
        "device": device,
        "push_to_hub": "false",
        "vlm_model_name": vlm,
        "load_vlm_weights": "false",
        "num_vlm_layers": size.text_layers,
        "resize_imgs_with_padding": f"[{IMAGE_SIZE},{IMAGE_SIZE}]",
        "max_state_dim": 4,
        "max_action_dim": 4,
        "chunk_size": CHUNK,
        "n_action_steps": EXECUTED,
        "num_steps": 5,
        "tokenizer_max_length": 16,
        # One length for all batches, as targets for every token of every anchor need it.
        "pad_language_to": "max_length",
        "train_expert_only": "false",
        "freeze_vision_encoder": "false",
    }
