# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path
import torch
from lerobot_craft.anchors import AnchorBatches, AnchorCache, CachePlan, build_cache, random_access

torch.set_num_threads(1)
root = Path(sys.argv[1])

def peak():
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM"))

def frame(index):
    generator = torch.Generator().manual_seed(index)
    return {"observation.image": torch.randint(0, 256, (3, 128, 128), generator=generator, dtype=torch.uint8)}

def build(count):
    def label(batch):
        return {"target_features": torch.zeros(len(batch["observation.image"]), 4096)}
    plan = CachePlan(kinds=("feature",), frame_indices=tuple(range(count)), shard_size=25, batch_size=8)
    build_cache(root / str(count), plan, random_access(frame), label)
    return peak()

def read(count):
    cache = AnchorCache.open(root / str(count))
    for _, batch in zip(range(count // 8), AnchorBatches(cache, 8)):
        pass
    return peak()

build(200)  # what the libraries and the allocator take at first
print(build(400), build(1200), read(400), read(1200))
"""


def test_memory_does_not_grow_with_the_number_of_anchors(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=True)
    build_400, build_1200, read_400, read_1200 = map(int, result.stdout.split())
    stored = sum(path.stat().st_size for path in (tmp_path / "1200").iterdir()) / 2**20
    assert stored > 50  # 800 anchors more are 52 MiB also when decoded
    assert build_1200 - build_400 < 16
    assert read_1200 - read_400 < 16
