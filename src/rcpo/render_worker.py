"""Draws a MuJoCo model in given positions: a program of its own, for drawing without a display can crash a process.

    python render_worker.py MODEL.xml POSITIONS.npy WIDTH HEIGHT

writes the pictures one after the other to standard output, three bytes a pixel. MUJOCO_GL says what draws.
"""

import sys

import mujoco
import numpy as np


def main(xml: str, positions: str, width: int, height: int) -> None:
    model = mujoco.MjModel.from_xml_path(xml)
    endless(model)
    model.vis.global_.offwidth, model.vis.global_.offheight = max(width, 640), max(height, 480)
    data = mujoco.MjData(model)
    cameras = [model.camera(i).name for i in range(model.ncam)]
    camera: int | mujoco.MjvCamera = cameras.index("track") if "track" in cameras else following(model)
    with mujoco.Renderer(model, height, width) as renderer:
        for qpos in np.load(positions, allow_pickle=False):
            data.qpos[:] = qpos
            mujoco.mj_forward(model, data)
            renderer.update_scene(data, camera)
            sys.stdout.buffer.write(renderer.render().tobytes())


def endless(model: mujoco.MjModel) -> None:
    """Draw planes as the physics has them: without an end. A cheetah runs farther than its floor is drawn."""
    for plane in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE):
        size, material = model.geom_size[plane, :2].copy(), model.geom_matid[plane]
        if material >= 0 and size.all() and not model.mat_texuniform[material]:
            # Of a plane with an end the texture is repeated so often on the whole, of one without on every metre.
            model.mat_texrepeat[material] /= 2.0 * size
        model.geom_size[plane, :2] = 0.0
    model.vis.map.zfar *= 4.0  # such a plane is drawn in a grid as wide as what can be seen: now for more than 600 m


def following(model: mujoco.MjModel) -> mujoco.MjvCamera:
    """A camera that follows the first body that moves, from the side."""
    camera = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, camera)
    camera.type, camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, min(1, model.nbody - 1)
    camera.azimuth, camera.elevation = 90.0, -15.0
    return camera


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
