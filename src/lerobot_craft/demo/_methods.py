# SPDX-License-Identifier: Apache-2.0
"""The three fine-tunings the demo compares and the commands behind every stage; runs none of them."""

from dataclasses import dataclass
from pathlib import Path

from lerobot_craft.demo._settings import DemoSettings

NUM_ANCHORS = 200
BATCH_SIZE = 64
# Every token of the last encoder layer: what is pooled away is free to move.
HIDDEN = {"kinds": "hidden", "layers_to_save": "-1", "pooling": "tokens"}

# Small enough for a CPU: 125 thousand parameters. No VAE and no dropout: scripted experts have one way to do a thing.
POLICY = {
    "type": "act",
    "device": "cpu",
    "push_to_hub": "false",
    "dim_model": 64,
    "n_heads": 4,
    "dim_feedforward": 128,
    "n_encoder_layers": 2,
    "n_decoder_layers": 1,
    "chunk_size": 10,
    "n_action_steps": 5,
    "use_vae": "false",
    "dropout": 0,
}


# Down to nothing at the end: the last steps of a constant rate leave noise that has nothing to do with the method.
OPTIMIZATION = {
    "use_policy_training_preset": "false",
    "optimizer.type": "adamw",
    "optimizer.lr": 1e-3,
    "optimizer.weight_decay": 1e-4,
    "scheduler.type": "cosine_annealing_with_warmup",
    "scheduler.num_warmup_steps": 0,
}


@dataclass(frozen=True)
class Method:
    """One way to fine-tune.

    Attributes:
        title: Its name in the table.
        flags: What it adds to the command.
        does: What it does, in one line.
        shows: What its episodes show, in one line.
        anchored: Whether it reads the anchor cache.
    """

    title: str
    flags: tuple[str, ...]
    does: str
    shows: str
    anchored: bool = False


METHODS = {
    "plain": Method(
        "plain, as LeRobot does it",
        ("--craft.enabled=false",),
        "lerobot-train on the new task: new weights, and the new data's statistics",
        "what is left of the old tasks",
    ),
    "plain_teacher_statistics": Method(
        "plain, teacher's statistics",
        ("--craft.preset=plain",),
        "the same with the teacher's statistics kept",
        "what is left when only the weights have moved",
    ),
    "craft": Method(
        "CRaFT",
        ("--craft.preset=craft",),
        "the same steps under a budget on how far the anchors' hidden states may drift",
        "what is left under the budget",
        anchored=True,
    ),
}


@dataclass(frozen=True)
class Folders:
    """Where the parts of a demo are.

    Attributes:
        root: The demo's folder.
    """

    root: Path

    @property
    def old_data(self) -> Path:
        """Demonstrations of the old tasks."""
        return self.root / "data" / "old"

    @property
    def new_data(self) -> Path:
        """Demonstrations of the new task."""
        return self.root / "data" / "new"

    @property
    def teacher(self) -> Path:
        """The teacher's checkpoint."""
        return self.root / "teacher"

    @property
    def anchors(self) -> Path:
        """The anchor cache."""
        return self.root / "anchors"

    @property
    def results(self) -> Path:
        """The results."""
        return self.root / "results.json"

    @property
    def report(self) -> Path:
        """The page that shows them."""
        return self.root / "report.html"

    def run(self, name: str) -> Path:
        """Return the folder of one training run."""
        return self.root / "runs" / name

    def checkpoint(self, name: str) -> Path:
        """Return the last checkpoint of one training run, or the teacher's."""
        last = self.run(name) / "checkpoints" / "last" / "pretrained_model"
        return self.teacher if name == "teacher" else last


def repo_id(data: Path) -> str:
    """Return the id of one of the demo's datasets."""
    return f"craft-demo/{data.name}"


def teacher_words(settings: DemoSettings, folders: Folders) -> list[str]:
    """Return the words after `lerobot-craft train` that train the teacher."""
    policy = [f"--policy.{name}={value}" for name, value in POLICY.items()]
    return [*policy, "--craft.enabled=false", *_run_words(settings, folders, "teacher", folders.old_data)]


def method_words(settings: DemoSettings, folders: Folders, name: str) -> list[str]:
    """Return the words after `lerobot-craft train` that fine-tune by one of the methods."""
    method = METHODS[name]
    anchors = [f"--craft.anchor_cache_dir={folders.anchors}"] if method.anchored else []
    words = _run_words(settings, folders, name, folders.new_data)
    return [f"--policy.path={folders.teacher}", *method.flags, *anchors, *words]


def cache_words(settings: DemoSettings, folders: Folders) -> list[str]:
    """Return the words after `lerobot-craft cache` that build the anchors."""
    flags = {
        "policy.path": folders.teacher,
        "dataset.repo_id": repo_id(folders.old_data),
        "dataset.root": folders.old_data,
        "output_dir": folders.anchors,
        "num_anchors": NUM_ANCHORS,
        "selection": "k_center",
        **HIDDEN,
        "batch_size": BATCH_SIZE,
        "seed": settings.seed,
        "device": "cpu",
    }
    return [f"--{name}={value}" for name, value in flags.items()]


def _run_words(settings: DemoSettings, folders: Folders, name: str, data: Path) -> list[str]:
    steps = settings.teacher_steps if name == "teacher" else settings.steps
    flags = {
        "dataset.repo_id": repo_id(data),
        "dataset.root": data,
        "output_dir": folders.run(name),
        "seed": settings.seed,
        "steps": steps,
        "save_freq": steps,
        "batch_size": BATCH_SIZE,
        "log_freq": 50,
        "env_eval_freq": 0,
        "num_workers": 0,
        "wandb.enable": "false",
        **OPTIMIZATION,
    }
    return [f"--{flag}={value}" for flag, value in flags.items()]
