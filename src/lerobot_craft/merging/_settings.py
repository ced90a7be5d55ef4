# SPDX-License-Identifier: Apache-2.0
"""The settings of `lerobot-craft merge`, their defaults and their validation; imports neither torch nor LeRobot."""

from dataclasses import dataclass
from pathlib import Path

from lerobot_craft.errors import SettingsError

PROCESSORS = ("teacher", "policy")


@dataclass(frozen=True, kw_only=True)
class MergeSettings:
    """What to interpolate, and how to try the results.

    Attributes:
        teacher_path: The policy before fine-tuning.
        policy_path: The policy after it.
        alphas: Shares of the student.
        output_dir: Where the checkpoints go, one folder each.
        modules: Patterns of tensor names to interpolate; None is all.
        processors: Whose config and processors the checkpoints get.
        repo_id: A dataset of what the teacher knew, on which drift is measured; None measures none.
        root: Its folder, where it is not in LeRobot's cache.
        episodes: Which of its episodes; None is all.
        revision: Its revision.
        num_frames: How many frames to measure drift on.
        batch_size: Frames per forward.
        seed: Of the frames, the noise and the starts of rollouts.
        device: Where the policies run for drift; None is the teacher's choice where this machine has it.
        tasks: Meta-World tasks to try the checkpoints on; none where empty.
        rollouts: Episodes per task.
        max_steps: Steps after which an episode has failed.
    """

    teacher_path: str
    policy_path: str
    alphas: tuple[float, ...]
    output_dir: Path
    modules: str | None = None
    processors: str = "teacher"
    repo_id: str | None = None
    root: Path | None = None
    episodes: tuple[int, ...] | None = None
    revision: str | None = None
    num_frames: int = 200
    batch_size: int = 16
    seed: int = 0
    device: str | None = None
    tasks: tuple[str, ...] = ()
    rollouts: int = 20
    max_steps: int = 200

    def __post_init__(self) -> None:
        problems = []
        if not self.alphas:
            problems.append("`--alpha` names no share: expected numbers from 0 to 1, as in `--alpha=0.1,0.3,0.5`.")
        if outside := [alpha for alpha in self.alphas if not 0 <= alpha <= 1]:
            problems.append(f"`--alpha` names {', '.join(f'{alpha:g}' for alpha in outside)}: expected 0 to 1.")
        if len(set(self.alphas)) != len(self.alphas):
            problems.append("`--alpha` names a share twice: name each once.")
        if self.processors not in PROCESSORS:
            problems.append(f"`--processors={self.processors}`: expected one of {', '.join(PROCESSORS)}.")
        if self.root is not None and self.repo_id is None:
            problems.append("`--dataset.root` names a folder and `--dataset.repo_id` no dataset: give both.")
        problems += [
            f"`--{name}={value}`: expected 1 or more."
            for name, value in (
                ("num_frames", self.num_frames),
                ("batch_size", self.batch_size),
                ("rollouts", self.rollouts),
                ("max_steps", self.max_steps),
            )
            if value < 1
        ]
        if taken := [str(self.folder(alpha)) for alpha in self.alphas if self.folder(alpha).exists()]:
            problems.append(f"{', '.join(taken)} would be overwritten: name another `--output_dir`, or remove it.")
        if problems:
            raise SettingsError(problems)

    def folder(self, alpha: float) -> Path:
        """Return where the checkpoint of one share goes."""
        short = f"{alpha:.2f}"
        return self.output_dir / f"alpha_{short if float(short) == alpha else repr(alpha)}" / "pretrained_model"
