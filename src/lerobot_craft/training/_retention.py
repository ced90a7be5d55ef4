# SPDX-License-Identifier: Apache-2.0
"""From a retention mode to its term: connects the anchor cache, the policy and its preprocessor; trains nothing."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lerobot_craft.anchors import AnchorBatches, AnchorCache
from lerobot_craft.errors import UsageError
from lerobot_craft.policies import Tap, older_preprocess, policy_loss
from lerobot_craft.retention import (
    EWC,
    L2SP,
    CombinedRetention,
    HiddenRetention,
    RetentionTerm,
    diagonal_fisher,
    make_retention,
)
from lerobot_craft.taps import eval_mode
from lerobot_craft.training._anchors import Cache, student_tap
from lerobot_craft.training._build import Run
from lerobot_craft.training._compat import deserialize_rng_state, serialize_rng_state
from lerobot_craft.training._config import RetentionMode

SEED = 42
# pi0_fast's loss reads its labels under these names.
TOKENS, TOKEN_MASK = "action.tokens", "action.token_mask"
# What the older tools called their images, and a label that does not count.
PIXELS, IGNORED = "pixel_values", -100


@dataclass
class Retention:
    """What a run retains.

    Attributes:
        term: Returns the loss of the next anchor batch.
        source: Where it comes from, for the start-up block.
        anchors: How many anchors were loaded; None where the mode needs none.
        held_out: Returns the loss on anchors kept out of training; None where there are none.
        reference: Tensors a resumed run cannot make again: starting point and importance of the parameters.
        behind_tap: Names of the parameters behind the tap; None where the mode has no tap.
        feature_norms: Returns the mean norms of student and target features in the last anchor batch, the same in
            every process; None where the mode has no features.
    """

    term: RetentionTerm
    source: str
    anchors: int | None = None
    held_out: Callable[[], float] | None = None
    reference: dict[str, Tensor] | None = None
    behind_tap: frozenset[str] | None = None
    feature_norms: Callable[[], dict[str, float]] | None = None


def build_retention(run: Run, saved: dict[str, Tensor] | None) -> Retention | None:
    """Return what `craft.retention_mode` retains; None for `none`.

    Random numbers drawn on the way do not move the run's own.

    Args:
        run: The run, its policy and processors ready.
        saved: The `reference` of the run this one resumes.
    """
    state = serialize_rng_state()
    try:
        match run.craft.mode:
            case RetentionMode.NONE:
                return None
            case RetentionMode.L2SP | RetentionMode.EWC:
                return _parameter_distance(run, saved)
            case _:
                return _anchored(run)
    finally:
        deserialize_rng_state(state)


def _anchored(run: Run) -> Retention:
    cache = _cache(run)
    held_out_count = round(len(cache) * run.craft.held_out_anchors)
    train, held_out = None, None
    if 0 < held_out_count < len(cache):
        train, held_out = cache.split(run.craft.held_out_anchors, SEED)
    tap = student_tap(run.model, run.craft, cache) if run.craft.mode.has_tap else None
    term = _term(run, cache, train, tap)
    return Retention(
        term=term,
        source=str(cache.directory),
        anchors=len(cache),
        held_out=None if held_out is None else _HeldOut(run, cache, held_out, tap),
        behind_tap=None if tap is None else frozenset(tap.parameters_behind()),
        feature_norms=None if tap is None else lambda: _feature_norms(run, term),
    )


def _feature_norms(run: Run, term: HiddenRetention | CombinedRetention) -> dict[str, float]:
    names = ("student_feature_norm", "target_feature_norm")
    prefix = f"{RetentionMode.HIDDEN}/" if isinstance(term, CombinedRetention) else ""
    norms = torch.stack([term.metrics[prefix + name] for name in names])
    return dict(zip(names, run.accelerator.reduce(norms, reduction="mean").tolist(), strict=True))


def _cache(run: Run) -> Cache:
    if run.cache is None:
        raise RuntimeError(f"`retention_mode={run.craft.retention_mode}` was built without its anchor cache.")
    return run.cache


def _term(
    run: Run,
    cache: Cache,
    indices: Sequence[int] | Tensor | None,
    tap: Tap | None,
    *,
    mode: RetentionMode | None = None,
    batch_size: int | None = None,
    alone: bool = False,
) -> Any:  # noqa: ANN401 (one of four classes without a common base)
    """Return the term of a mode on some of the anchors; `alone` gives every process the same batches."""
    mode = run.craft.mode if mode is None else mode
    if len(mode.parts) > 1:
        terms = {str(part): _term(run, cache, indices, tap, mode=part, batch_size=batch_size) for part in mode.parts}
        # Not relative: the action loss's floor would have to be measured on the teacher, which a resumed run lacks.
        return CombinedRetention(terms, relative=False)
    accelerator = run.accelerator
    batches = AnchorBatches(
        cache,
        run.craft.anchors_beside(run.cfg.batch_size) if batch_size is None else batch_size,
        seed=SEED,
        rank=0 if alone else accelerator.process_index,
        world_size=1 if alone else accelerator.num_processes,
        indices=indices,
        # Decoding images on a thread hides behind work on a GPU; on a CPU both want the same cores.
        prefetch=2 if accelerator.device.type == "cuda" else 0,
        pin_memory=accelerator.device.type == "cuda",
    )
    settings: dict[str, Any] = {"preprocess": _preprocess(run, cache)}
    if mode is RetentionMode.HIDDEN:
        if tap is None:
            raise RuntimeError("`retention_mode=hidden` was built without a tap.")
        settings |= {"loss": run.craft.hidden_loss_type, "relative": run.craft.hidden_relative}
        return make_retention(mode, batches, features=_features(run, cache, tap), **settings)
    own_loss = _token_loss(run) if mode is RetentionMode.TOKEN_CE else _own_loss(run)
    return make_retention(mode, batches, policy_loss=own_loss, seed=SEED, **settings)


def _preprocess(run: Run, cache: Cache) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the preprocessor of a task batch, unless the anchors' inputs have been through that of an older tool."""
    if PIXELS in cache.batch([0]).frames:
        return older_preprocess(run.model)
    preprocessor: Callable[[dict[str, Any]], dict[str, Any]] = run.preprocessor
    return preprocessor


def _features(run: Run, cache: Cache, tap: Tap) -> Callable[[dict[str, Any]], Tensor]:
    recorded = cache.manifest.plan.pooling if isinstance(cache, AnchorCache) else cache.metadata.get("pooling")
    usual = "vision_mean_text_last" if "hidden" in cache.kinds else "mean_image_tokens"
    pooling: Any = recorded or run.craft.pooling or usual

    def features(batch: dict[str, Any]) -> Tensor:
        with run.accelerator.autocast():
            return tap.features(batch, pooling)

    return features


def _own_loss(run: Run) -> Callable[[dict[str, Any], int], Tensor]:
    model = run.model

    def loss(batch: dict[str, Any], seed: int) -> Tensor:
        with run.accelerator.autocast():
            return policy_loss(model, batch, seed)

    return loss


def _token_loss(run: Run) -> Callable[[dict[str, Any], int], Tensor]:
    own_loss = _own_loss(run)
    return lambda batch, seed: own_loss(with_token_labels(batch, run.accelerator.device), seed)


def with_token_labels(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return a batch of anchors with their labels, if they have any, where pi0_fast's loss looks for them."""
    if "labels" not in batch:
        return batch
    labels = batch["labels"].to(device, non_blocking=True)
    if "labels_mask" in batch:
        mask = batch["labels_mask"].to(device, non_blocking=True).bool()
    else:
        labels, mask = _left_aligned(labels)
    return {**batch, TOKENS: labels, TOKEN_MASK: mask}


def _left_aligned(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return labels [batch, tokens] without their ignored places, those that count first, and which count."""
    counted = labels != IGNORED
    order = torch.argsort((~counted).to(torch.int8), dim=1, stable=True)
    length = int(counted.sum(1).max())
    aligned = labels.gather(1, order)[:, :length]
    mask = counted.gather(1, order)[:, :length]
    return aligned.masked_fill(~mask, 0), mask


class _HeldOut:
    """The retention loss over the anchors kept out of training, the same ones with the same noise each time."""

    def __init__(self, run: Run, cache: Cache, indices: Tensor, tap: Tap | None) -> None:
        share = run.craft.anchors_beside(run.cfg.batch_size) * run.accelerator.num_processes
        self._batches = max(1, -(-len(indices) // share))
        self._term = _term(run, cache, indices, tap)
        self._beginning = self._term.state_dict()

    def __call__(self) -> float:
        losses = torch.stack([self._term().detach() for _ in range(self._batches)])
        self._term.load_state_dict(self._beginning)
        return float(losses.mean())


def _parameter_distance(run: Run, saved: dict[str, Tensor] | None) -> Retention:
    start = trained(run.model) if saved is None else _part(saved, "start")
    importance = None
    if run.craft.mode is RetentionMode.EWC:
        importance = _fisher(run) if saved is None else _part(saved, "importance")
    with _parameters_at(run.model, start):
        term: RetentionTerm = L2SP(run.model) if importance is None else EWC(run.model, importance)
    return Retention(
        term=term,
        source="distance to the teacher's parameters",
        held_out=lambda: float(term()),
        reference=_prefixed(start, "start") | _prefixed(importance or {}, "importance"),
    )


def _fisher(run: Run) -> dict[str, Tensor]:
    cache = _cache(run)
    known = [mode for mode in (RetentionMode.ACTION, RetentionMode.REPLAY) if mode in cache.kinds]
    if not known:
        raise UsageError(
            f"`--craft.retention_mode=ewc` estimates its Fisher information on anchors with actions, and "
            f"`--craft.anchor_cache_dir={cache.directory}` holds {', '.join(cache.kinds)}: build one with "
            "`lerobot-craft cache --kinds=action`."
        )
    # One anchor at a time: squares of averaged gradients would shrink with the batch.
    term = _term(run, cache, None, None, mode=known[0], batch_size=1, alone=True)
    count = min(run.craft.fisher_anchors, len(cache))
    model = run.model
    with eval_mode(model):
        return diagonal_fisher(model, (term for _ in range(count)))


def trained(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of the parameters that train, by name."""
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def _prefixed(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}/"): t for name, t in tensors.items() if name.startswith(f"{prefix}/")}


@contextlib.contextmanager
def _parameters_at(model: nn.Module, values: dict[str, Tensor]) -> Iterator[None]:
    present = trained(model)
    _set(model, values)
    try:
        yield
    finally:
        _set(model, present)


@torch.no_grad()
def _set(model: nn.Module, values: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        if name in values:
            parameter.copy_(values[name])
