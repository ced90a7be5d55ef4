# SPDX-License-Identifier: Apache-2.0
"""Pack what a GPU machine without network lacks to run the benchmarks: about 50 MB.

    .venv/bin/python scripts/gpu_pack.py DIR                 writes DIR/pack.tar.xz and DIR/setup.sh
    eval "$(bash DIR/setup.sh)"                              there, from the root of a copy of this repository
    python3 benchmarks/gpu_step.py --device cuda

That machine brings Python 3.12, torch, torchvision, accelerate, peft, pyarrow, pandas and scipy. The packages come from
this environment. PyAV is left out, being too large; a stand-in takes its place, so no video can be read or written.
"""

import argparse
import shutil
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path

# These go before what the machine has: LeRobot 0.6.1 wants its own versions of them.
FIRST = (
    *("lerobot", "draccus", "mergedeep", "toml", "typing-inspect", "mypy-extensions", "termcolor", "jsonlines"),
    *("datasets", "dill", "multiprocess", "pytz", "transformers", "tokenizers", "num2words", "docopt"),
    *("gymnasium", "farama-notifications", "mujoco", "metaworld", "glfw", "pyopengl"),
)
# These only where the machine has none.
LAST = (
    "imageio",
    "einops",
    "cloudpickle",
    "xxhash",
    "regex",
    "pyyaml",
    "python-dateutil",
    "psutil",
    "accelerate",
    "peft",
)
# What draws without a screen once the driver's own part is found.
GRAPHICS = ("EGL", "GLdispatch", "OpenGL", "GL", "GLX", "X11", "xcb", "Xau", "Xdmcp", "Xext", "bsd", "md")
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")

AV = '''"""A stand-in for PyAV where no video is read: every name is there, and none of them does anything."""

import sys
import types

__version__ = "{version}"


class _Anything(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "WARNING":
            made = 24
        elif name[0].isupper():
            made = type(name, (Exception,) if name.endswith("Error") else (), {{}})
        else:
            made = _Anything(f"{{self.__name__}}.{{name}}")
        setattr(self, name, made)
        return made

    def __call__(self, *words, **named):
        return None


class Codec:
    type = "video"
    video_formats = ()
    descriptor = types.SimpleNamespace(options=[types.SimpleNamespace(name="")])

    def __init__(self, name="", mode="r"):
        self.name = name


class VideoFormat:
    def __init__(self, name=""):
        self.components = (None,) * 4


class VideoFrame:
    pass


class AudioFrame:
    pass


def open(*words, **named):
    raise RuntimeError("PyAV is not here: no video can be read or written.")


for _name in ("logging", "codec", "container", "error", "option", "filter", "video", "audio", "stream"):
    sys.modules[f"av.{{_name}}"] = globals()[_name] = _Anything(f"av.{{_name}}")
codec.Codec = Codec
'''

CUSTOMIZE = """import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "last"))
"""

SETUP = """# Prints what `eval` is to take; the first time it unpacks.
set -e
HERE="$(cd "$(dirname "$0")" && pwd)"
ROOT="$(pwd)"
TO=/tmp/lerobot-craft-pack
if [ ! -d $TO/pack ]; then mkdir -p $TO; tar xJf "$HERE/pack.tar.xz" -C $TO --no-same-owner 1>&2; fi
VENDOR=$(find / -name 10_nvidia.json -path '*egl_vendor*' -not -path '/proc/*' 2>/dev/null | head -1)
DRIVER=$(find / -name libEGL_nvidia.so.0 -not -path '/proc/*' 2>/dev/null | head -1)
echo "export PYTHONPATH=$TO/pack/first:$ROOT/src:$ROOT/benchmarks"
echo "export LD_LIBRARY_PATH=$TO/pack/graphics:$(dirname "$DRIVER"):\\$LD_LIBRARY_PATH"
echo "export __EGL_VENDOR_LIBRARY_FILENAMES=$VENDOR MUJOCO_GL=egl PYOPENGL_PLATFORM=egl HF_HUB_OFFLINE=1"
echo "export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false"
"""


def copy_distribution(name: str, folder: Path) -> None:
    """Copy the files of an installed package, without tests and commands."""
    found = metadata.distribution(name)
    for file in found.files or ():
        source = Path(str(found.locate_file(file)))
        if source.is_file() and ".." not in file.parts and not {"__pycache__", "tests", "test"} & set(file.parts):
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def claim(folder: Path, name: str) -> None:
    """Let `importlib.metadata` find a package in this environment's version."""
    version = metadata.version(name)
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def pack(folder: Path) -> None:
    """Write the pack and its set-up."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "pack"
        for name in FIRST:
            copy_distribution(name, root / "first")
        for name in LAST:
            copy_distribution(name, root / "last")
        # LeRobot imports it for cameras alone.
        (root / "last" / "cv2").mkdir()
        (root / "last" / "cv2" / "__init__.py").write_text('"""A stand-in for OpenCV."""\n')
        (root / "first" / "av").mkdir()
        (root / "first" / "av" / "__init__.py").write_text(AV.format(version=metadata.version("av")))
        (root / "first" / "sitecustomize.py").write_text(CUSTOMIZE)
        for name in ("av", "lerobot-craft"):
            claim(root / "first", name)
        (root / "graphics").mkdir()
        for name in GRAPHICS:
            for library in LIBRARIES.glob(f"lib{name}.so.*"):
                shutil.copy(library, root / "graphics", follow_symlinks=False)
        with tarfile.open(folder / "pack.tar.xz", "w:xz") as tar:
            tar.add(root, "pack")
    (folder / "setup.sh").write_text(SETUP)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where pack.tar.xz and setup.sh go")
    folder = parser.parse_args().folder
    pack(folder)
    print(f"{folder / 'pack.tar.xz'}: {(folder / 'pack.tar.xz').stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
