# SPDX-License-Identifier: Apache-2.0
"""The ways to fine-tune that the pixel benchmark compares, and the words of every command; runs none of them."""

from dataclasses import dataclass, field
from pathlib import Path

from _pixels_policy import Size, policy_flags

OLD_CACHE, PROMPT_CACHE = "old", "prompts"

_EVERY_STEP = "--craft.retention_freq=1"
_FIXED = (
    _EVERY_STEP,
    "--craft.lambda_controller=fixed",
    "--craft.use_grad_projection=false",
    "--craft.lambda_max=10",
)
# What `preset=craft` was for this policy before it was measured.
_BUDGET = (
    *("--craft.preset=craft", "--craft.lambda_controller=pi", "--craft.initial_lambda=1", "--craft.lambda_lr=1"),
    *("--craft.lambda_kp=10", "--craft.violation_ema=0.9"),
)
_BOUNDED = ("--craft.lambda_max=100", "--craft.use_grad_projection=true", "--craft.max_retention_ratio=4")
_HIDDEN = ("--craft.retention_mode=hidden", "--craft.hidden_relative=true", "--craft.initial_lambda=10", *_FIXED)


@dataclass(frozen=True)
class Method:
    """One way to fine-tune.

    Attributes:
        title: Its name in the table.
        flags: What it adds to `lerobot-craft train`.
        anchors: Which cache it reads, if any.
        share: It takes one anchor where the others take so many.
    """

    title: str
    flags: tuple[str, ...]
    anchors: str | None = None
    share: float = 1


# In the order in which they are worth having, should the time run out.
METHODS: dict[str, Method] = {
    "plain": Method("plain, teacher's statistics", ("--craft.preset=plain",)),
    "action": Method("action, λ = 1", ("--craft.preset=lwf",), OLD_CACHE),
    # As people get it: a quarter as many anchors as frames.
    "craft": Method("`preset=craft`: action, λ = 1, 16 anchors", ("--craft.preset=craft",), OLD_CACHE, share=2),
    "hidden": Method("hidden, all layers and tokens, λ = 10", _HIDDEN, OLD_CACHE),
    "plain_lerobot": Method("plain, as LeRobot does it", ("--craft.enabled=false",)),
    "replay": Method("replay, λ = 1", ("--craft.preset=er",), OLD_CACHE),
    "hidden_frozen": Method("hidden + `freeze_behind_tap`", (*_HIDDEN, "--craft.freeze_behind_tap=true"), OLD_CACHE),
    "budget": Method("action under a budget, bounded", (*_BUDGET, *_BOUNDED), OLD_CACHE),
    "budget_few": Method(
        "action under a budget, one pass, 8 anchors",
        (*_BUDGET, "--craft.lambda_max=10"),
        OLD_CACHE,
        share=4,
    ),
    "action_few": Method("action, λ = 1, 8 anchors", ("--craft.preset=lwf",), OLD_CACHE, share=4),
    "prompts": Method("action, new images under old instructions", ("--craft.preset=lwf",), PROMPT_CACHE),
    "lora": Method("LoRA, rank 32", ("--craft.preset=plain", "--peft.method_type=LORA", "--peft.r=32")),
    "hidden_action": Method(
        "hidden + action, λ = 1",
        (
            *("--craft.retention_mode=hidden+action", "--craft.hidden_relative=true", "--craft.initial_lambda=1"),
            *_FIXED,
            # No checkpoint is chosen here, and its held-out loss would measure its floor on the student.
            "--craft.held_out_anchors=0",
        ),
        OLD_CACHE,
    ),
    # As many anchors as frames.
    "action_full": Method("action, λ = 1, 64 anchors", ("--craft.preset=lwf",), OLD_CACHE, share=0.5),
}
# Weight interpolation between the teacher and this method's result.
MERGED_METHOD = "plain"
ALPHAS = (0.3, 0.5, 0.7)


def titles() -> dict[str, str]:
    """Return the title of every row of the table, in its order."""
    merged = {f"merge_{alpha:.1f}": f"merge of teacher and plain, α = {alpha:.1f}" for alpha in ALPHAS}
    order = (
        *("plain_lerobot", "plain", "hidden", "hidden_frozen", "hidden_action", "action_full", "action", "action_few"),
        *("craft", "budget", "budget_few", "replay", "prompts", "lora"),
    )
    return {"teacher": "teacher, before", **{name: METHODS[name].title for name in order}, **merged}


@dataclass(frozen=True)
class Plan:
    """What is trained, how long and where.

    Attributes:
        root: Folder of everything.
        size: Of the policy.
        device: Where it trains.
        teacher_steps: Steps of pretraining.
        steps: Steps of each fine-tuning.
        teacher_batch: Frames in a batch of pretraining.
        batch: Frames in a batch of fine-tuning.
        anchor_batch: Anchors beside it.
        anchors: Anchors in a cache.
        learning_rate: Peak of pretraining's.
        tuning_rate: Peak of fine-tuning's.
    """

    root: Path
    size: Size = field(default_factory=Size)
    device: str = "cuda"
    teacher_steps: int = 1500
    steps: int = 500
    teacher_batch: int = 128
    batch: int = 64
    anchor_batch: int = 32
    anchors: int = 600
    learning_rate: float = 5e-4
    tuning_rate: float = 5e-4

    def data(self, name: str) -> Path:
        """Return the folder of a dataset, `old` or `new`."""
        return self.root / "data" / name

    @property
    def vlm(self) -> Path:
        """Folder of the VLM's config."""
        return self.root / "vlm"

    @property
    def prompts(self) -> Path:
        """File of the old instructions."""
        return self.root / "prompts.txt"

    def folder(self, seed: int, name: str) -> Path:
        """Return the folder of a run."""
        return self.root / f"seed{seed}" / name

    def teacher(self, seed: int) -> Path:
        """Return the teacher's checkpoint."""
        return self.checkpoint(seed, "teacher")

    def checkpoint(self, seed: int, name: str) -> Path:
        """Return the checkpoint of a row of the table."""
        return self.folder(seed, name) / "checkpoints" / "last" / "pretrained_model"

    def cache(self, seed: int, name: str) -> Path:
        """Return the folder of an anchor cache."""
        return self.root / f"seed{seed}" / f"anchors_{name}"


def teacher_words(plan: Plan, seed: int) -> list[str]:
    """Return the words after `lerobot-craft train` that train the teacher from scratch."""
    policy = policy_flags(plan.vlm, plan.size, plan.device) | {"optimizer_lr": plan.learning_rate}
    words = [f"--policy.{name}={value}" for name, value in policy.items()]
    run = _run_words(plan, seed, "teacher", "old", plan.teacher_steps, plan.teacher_batch)
    return [*words, "--craft.enabled=false", *run]


def method_words(plan: Plan, seed: int, name: str) -> list[str]:
    """Return the words after `lerobot-craft train` that fine-tune by one of the methods."""
    method = METHODS[name]
    words = [f"--policy.path={plan.teacher(seed)}", f"--policy.optimizer_lr={plan.tuning_rate}"]
    words += ["--policy.push_to_hub=false", f"--policy.device={plan.device}", *method.flags]
    if method.anchors is not None:
        words.append(f"--craft.anchor_cache_dir={plan.cache(seed, method.anchors)}")
        words.append(f"--craft.anchor_batch_size={round(plan.anchor_batch / method.share)}")
    return [*words, *_run_words(plan, seed, name, "new", plan.steps, plan.batch)]


def cache_words(plan: Plan, seed: int, name: str) -> list[str]:
    """Return the words after `lerobot-craft cache` that build one of the caches."""
    data = "old" if name == OLD_CACHE else "new"
    flags: dict[str, object] = {
        "policy.path": plan.teacher(seed),
        "dataset.repo_id": f"pixels/{data}",
        "dataset.root": plan.data(data),
        "output_dir": plan.cache(seed, name),
        "num_anchors": plan.anchors,
        "batch_size": 100,
        "seed": seed,
        "device": plan.device,
    }
    if name == OLD_CACHE:
        layers = ",".join(str(layer) for layer in range(plan.size.text_layers))
        flags |= {"kinds": "hidden,action,replay", "layers_to_save": layers, "pooling": "tokens"}
        flags["selection"] = "k_center"
    else:
        flags |= {"kinds": "action", "prompts_file": plan.prompts}
    return [f"--{flag}={value}" for flag, value in flags.items()]


def _run_words(plan: Plan, seed: int, name: str, data: str, steps: int, batch: int) -> list[str]:
    flags = {
        "dataset.repo_id": f"pixels/{data}",
        "dataset.root": plan.data(data),
        "output_dir": plan.folder(seed, name),
        "seed": seed,
        "steps": steps,
        "save_freq": steps,
        "batch_size": batch,
        "log_freq": max(1, steps // 10),
        "env_eval_freq": 0,
        "num_workers": 0,
        "dataset.video_backend": "pyav",
        "wandb.enable": "false",
    }
    return [f"--{flag}={value}" for flag, value in flags.items()]
