# SPDX-License-Identifier: Apache-2.0
"""Meta-World through LeRobot's camera: small images without shadows, drawn only when asked for."""

from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from lerobot_craft.evaluation import Simulator

IMAGE_SIZE = 96
# What a policy sees of its own body, as in LeRobot's environment: the hand's place and the gripper.
STATE_SIZE = 4
CAMERA = "corner2"
# LeRobot moves this camera closer.
CAMERA_PLACE = (0.75, 0.075, 0.7)

type Image = npt.NDArray[np.uint8]


class Eye:
    """Draws simulators of one task. They share meshes and textures, so one drawing context serves all of them."""

    def __init__(self) -> None:
        self._made: tuple[Any, Any, Any] | None = None
        self._camera = mujoco.MjvCamera()
        self._options = mujoco.MjvOption()
        self._place = mujoco.MjrRect(0, 0, IMAGE_SIZE, IMAGE_SIZE)

    def look(self, simulator: Simulator) -> Image:
        """Return what the camera sees, [height, width, 3]."""
        env: Any = simulator._env
        model, data = env.model, env.data
        if self._made is None:
            self._made = self._make(model)
        gl, context, scene = self._made
        gl.make_current()
        mujoco.mjv_updateScene(model, data, self._options, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL, scene)
        mujoco.mjr_render(self._place, scene, context)
        image = np.empty((IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(image, None, self._place, context)
        # OpenGL's first row is the lowest, and this camera hangs upside down: only left and right are to be swapped.
        return np.ascontiguousarray(image[:, ::-1])

    def _make(self, model: Any) -> tuple[Any, Any, Any]:  # noqa: ANN401 (mujoco's classes have no types)
        # By name, whatever `MUJOCO_GL` said when MuJoCo was imported: no other draws without a screen on every machine.
        from mujoco.egl import GLContext

        gl = GLContext(IMAGE_SIZE, IMAGE_SIZE)
        gl.make_current()
        # A shadow map of 4096² would cost 64 MB a context, for shadows that are off.
        model.vis.quality.shadowsize = 0
        context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, context)
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = model.camera(CAMERA).id
        return gl, context, mujoco.MjvScene(model, maxgeom=2000)


def make_simulator(task: str) -> Simulator:
    """Return a task's simulator with LeRobot's camera and without shadows."""
    simulator = Simulator(task)
    model: Any = simulator._env.model
    model.camera(CAMERA).pos[:] = CAMERA_PLACE
    model.light_castshadow[:] = 0
    return simulator


def body_state(observation: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return what of an observation the policy is given."""
    return observation[:STATE_SIZE]
