# SPDX-License-Identifier: Apache-2.0
"""Word-level tokenizers and a SmolVLM folder, written locally so that nothing asks the Hub.

Words outside the short list become `<unk>`; that is enough for dry runs and for tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from lerobot_craft.testing._dataset import IMAGE_SIZE, TASKS

if TYPE_CHECKING:
    from pathlib import Path

VOCAB_SIZE = 512
# PaliGemma's order: padding first, because LeRobot pads action tokens with the number 0.
SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")
SMOLVLM_SPECIAL = {
    "fake_image_token": "<fake_token_around_image>",
    "image_token": "<image>",
    "global_image_token": "<global-img>",
    "end_of_utterance_token": "<end_of_utterance>",
}
# "|" ends an action and "Action :" opens one in pi0_fast; numbers are the discretised state of pi05.
PUNCTUATION = ("|", ":", ",", ";", ";\n", ".", "-")
WORDS = (
    "Task",
    "State",
    "Action",
    "the",
    "a",
    "pick",
    "place",
    "open",
    "close",
    "up",
    "down",
    "left",
    "right",
)


def make_text_tokenizer(directory: Path) -> None:
    """Write a word-level tokenizer in PaliGemma's manner: every id is a token, the last ones spare."""
    _word_level({}).save_pretrained(directory)


def make_smolvlm(directory: Path, hidden_size: int, layers: int) -> None:
    """Write a SmolVLM config with its processor; SmolVLA builds its weights from the config.

    Args:
        directory: Where to write; the path becomes SmolVLA's `vlm_model_name`.
        hidden_size: Width of the text model.
        layers: Depth of the text model.
    """
    from transformers import SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor, SmolVLMVideoProcessor

    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": hidden_size // 4}
    text = {
        "model_type": "llama",
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_hidden_layers": layers,
        "vocab_size": VOCAB_SIZE,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 1,
        **heads,
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": IMAGE_SIZE,
        "patch_size": 8,
    }
    tokenizer = _word_level(SMOLVLM_SPECIAL)
    image_id = tokenizer.convert_tokens_to_ids(SMOLVLM_SPECIAL["image_token"])
    config = SmolVLMConfig(
        text_config=text, vision_config=vision, scale_factor=2, image_token_id=image_id, pad_token_id=0
    )
    config.save_pretrained(directory)
    images, videos = SmolVLMImageProcessor(), SmolVLMVideoProcessor()
    SmolVLMProcessor(images, tokenizer, videos, image_seq_len=4).save_pretrained(directory)


def _word_level(extra: dict[str, str]) -> PreTrainedTokenizerFast:
    task_words = [word for task in TASKS for word in task.split()]
    numbers = [str(number) for number in range(257)]
    known = dict.fromkeys([*SPECIAL, *extra.values(), *PUNCTUATION, *WORDS, *task_words, *numbers])
    spare = [f"<spare{index:04d}>" for index in range(VOCAB_SIZE - len(known))]
    vocabulary = {token: index for index, token in enumerate([*known, *spare])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106 - a token, not a password
    tokenizer.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",  # noqa: S106
        eos_token="<eos>",  # noqa: S106
        bos_token="<bos>",  # noqa: S106
        unk_token="<unk>",  # noqa: S106
        extra_special_tokens=extra,
    )
