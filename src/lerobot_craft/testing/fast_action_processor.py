# SPDX-License-Identifier: Apache-2.0
"""A FAST action tokenizer: cosine transform, rounding, byte-pair encoding (Pertsch et al., 2025).

The original lives on the Hub as code that transformers downloads, so it cannot be had offline. This one
computes the same quantities under the same attribute names (`bpe_tokenizer`, `scale`, `min_token`), which is
all LeRobot reads. transformers copies this file into the checkpoint and runs it from there: keep it free of
imports from this package.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.fft import dct
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast
from transformers.processing_utils import ProcessorMixin


class FastActionProcessor(ProcessorMixin):
    """Turns action chunks [batch, time, dim] into lists of token ids.

    Args:
        bpe_tokenizer: Byte-pair encoder over characters, one per rounded coefficient.
        scale: Coefficients are multiplied by this before rounding.
        min_token: The smallest coefficient; it becomes character 0.
    """

    def __init__(self, bpe_tokenizer: PreTrainedTokenizerFast, scale: float = 10.0, min_token: int = 0) -> None:
        self.scale = scale
        self.min_token = min_token
        super().__init__(bpe_tokenizer)

    def __call__(self, chunks: Any) -> list[list[int]]:  # noqa: ANN401 - arrays and tensors alike
        """Encode each chunk.

        Args:
            chunks: Normalised actions, [batch, time, dim].
        """
        encode = self.bpe_tokenizer
        return [encode(text)["input_ids"] for text in self._to_text(np.asarray(chunks), self.min_token)]

    def _to_text(self, chunks: np.ndarray[Any, Any], min_token: int) -> list[str]:
        top = 0xD7FF  # beyond lie surrogates, which no string can hold
        steps = np.clip(_coefficients(chunks, self.scale) - min_token, 0, top)
        return ["".join(map(chr, chunk.flatten())) for chunk in steps]

    @classmethod
    def fit(cls, chunks: np.ndarray[Any, Any], *, scale: float, vocab_size: int) -> Self:
        """Train the byte-pair encoder on normalised chunks [n, time, dim].

        Coefficients a little outside the range of `chunks` still have a token of their own.
        """
        coefficients = _coefficients(chunks, scale)
        low, high = int(coefficients.min()) - 8, int(coefficients.max()) + 8
        alphabet = [chr(index) for index in range(high - low + 1)]
        bpe = Tokenizer(BPE())
        bpe.decoder = Fuse()  # without it, tokens are joined with spaces, which are coefficients here
        trainer = BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, special_tokens=[], show_progress=False)
        blank = cls(PreTrainedTokenizerFast(tokenizer_object=bpe), scale, low)
        bpe.train_from_iterator(blank._to_text(chunks, low), trainer)
        fitted = PreTrainedTokenizerFast(tokenizer_object=bpe, clean_up_tokenization_spaces=False)
        return cls(fitted, scale, low)


def _coefficients(chunks: np.ndarray[Any, Any], scale: float) -> np.ndarray[Any, Any]:
    rounded: np.ndarray[Any, Any] = np.around(dct(chunks, axis=1, norm="ortho") * scale).astype(int)
    return rounded
