# SPDX-License-Identifier: Apache-2.0
"""Datasets and their loaders, with the order of `lerobot-train` and its place after a resume; holds no policy."""

import logging
from typing import Any

from huggingface_hub.errors import EntryNotFoundError, HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError
from torch.utils.data import DataLoader, Subset

from lerobot_craft.errors import UsageError
from lerobot_craft.training import _compat
from lerobot_craft.training._compat import Accelerator, TrainPipelineConfig

logger = logging.getLogger(__name__)

# LeRobot's datasets share no base class.
type Dataset = Any

NOT_FOUND = (
    FileNotFoundError,
    NotADirectoryError,
    EntryNotFoundError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    ConnectionError,
)


def make_datasets(cfg: TrainPipelineConfig, accelerator: Accelerator) -> tuple[Dataset, Dataset]:
    """Return the dataset to train on, and the held-out episodes or None.

    Raises:
        UsageError: If it cannot be found.
    """
    try:
        datasets: tuple[Dataset, Dataset] | None = None
        # The main process downloads, the others read what it has put there.
        if accelerator.is_main_process:
            logger.info("Creating dataset")
            datasets = _compat.make_train_eval_datasets(cfg)
        accelerator.wait_for_everyone()
        if datasets is None:
            datasets = _compat.make_train_eval_datasets(cfg)
    except NOT_FOUND as error:
        root = "" if cfg.dataset.root is None else f" in `--dataset.root={cfg.dataset.root}`"
        raise UsageError(
            f"`--dataset.repo_id={cfg.dataset.repo_id}` was not found{root}: expected a LeRobotDataset on the Hub or "
            f"on disk. For a folder on disk pass `--dataset.root=FOLDER` too. ({type(error).__name__}: {error})"
        ) from error
    return datasets


def make_loader(
    cfg: TrainPipelineConfig,
    dataset: Dataset,
    accelerator: Accelerator,
    step: int,
) -> tuple[DataLoader[Any], dict[str, int] | None]:
    """Return batches of the new task, and the epoch and offset a resumed run begins at."""
    sampler = None
    sampler_state = None
    if not cfg.dataset.streaming:
        sampler = _compat.EpisodeAwareSampler(
            dataset.meta.episodes["dataset_from_index"],
            dataset.meta.episodes["dataset_to_index"],
            episode_indices_to_use=dataset.episodes,
            drop_n_last_frames=_compat.policy_option(cfg.policy, "drop_n_last_frames", 0),
            shuffle=True,
            seed=cfg.seed if cfg.seed is not None else 0,
            absolute_to_relative_idx=dataset.absolute_to_relative_idx,
        )
        if cfg.resume and step > 0:
            sampler_state = _resumed_position(cfg, accelerator, step, len(sampler))
            sampler.load_state_dict(sampler_state)
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=cfg.batch_size,
        shuffle=False,
        sampler=sampler,
        **_loader_options(cfg, dataset, accelerator),
    )
    return loader, sampler_state


def _resumed_position(cfg: TrainPipelineConfig, accelerator: Accelerator, step: int, frames: int) -> dict[str, int]:
    processes = _compat.load_training_num_processes(cfg.checkpoint_path) or accelerator.num_processes
    batch_size = _compat.load_training_batch_size(cfg.checkpoint_path) or cfg.batch_size
    if (processes, batch_size) != (accelerator.num_processes, cfg.batch_size):
        logger.warning(
            "The checkpoint was written by %d process(es) with batch size %d, this run has %d and %d: the data order "
            "goes on at the right place, but not with the same batches.",
            *(processes, batch_size, accelerator.num_processes, cfg.batch_size),
        )
    state: dict[str, int] = _compat.compute_sampler_state(step, frames, batch_size, processes)
    return state


def make_held_out_loader(
    cfg: TrainPipelineConfig,
    dataset: Dataset,
    held_out: Dataset,
    accelerator: Accelerator,
) -> DataLoader[Any] | None:
    """Return batches of held-out episodes, None where there are none."""
    if held_out is None:
        return None
    if cfg.max_eval_samples > 0:
        tasks = held_out.hf_dataset.data.column("task_index").to_numpy()
        names = sorted(set(tasks.tolist()))
        share = max(1, cfg.max_eval_samples // len(names))
        held_out = Subset(held_out, [i for name in names for i in (tasks == name).nonzero()[0][:share].tolist()])
    return DataLoader(held_out, batch_size=cfg.batch_size, shuffle=False, **_loader_options(cfg, dataset, accelerator))


def _loader_options(cfg: TrainPipelineConfig, dataset: Dataset, accelerator: Accelerator) -> dict[str, Any]:
    workers = cfg.num_workers > 0
    return {
        "num_workers": cfg.num_workers,
        "pin_memory": accelerator.device.type == "cuda",
        "drop_last": False,
        "collate_fn": _compat.lerobot_collate_fn if dataset.meta.has_language_columns else None,
        "prefetch_factor": cfg.prefetch_factor if workers else None,
        "persistent_workers": cfg.persistent_workers and workers,
        "multiprocessing_context": cfg.dataloader_multiprocessing_context if workers else None,
    }
