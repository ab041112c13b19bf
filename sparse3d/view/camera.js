// An orbit camera. Matrices are column-major; z is up; lengths are those of the scan.

const FIELD = 50 * Math.PI / 180;

function multiply(a, b) {
  const out = new Float32Array(16);
  for (let c = 0; c < 4; c++) {
    for (let r = 0; r < 4; r++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) sum += a[4 * k + r] * b[4 * c + k];
      out[4 * c + r] = sum;
    }
  }
  return out;
}

function makeCamera(home, radius) {
  // `shift` moves the middle of the picture sideways, in halves of the screen's width.
  const camera = { target: [...home.target], distance: home.distance, yaw: home.yaw, pitch: home.pitch, shift: 0 };

  // Right, up and backward: the axes of the screen.
  camera.axes = () => {
    const [sy, cy, sp, cp] = [Math.sin(camera.yaw), Math.cos(camera.yaw), Math.sin(camera.pitch), Math.cos(camera.pitch)];
    return { right: [-sy, cy, 0], up: [-sp * cy, -sp * sy, cp], back: [cp * cy, cp * sy, sp] };
  };

  camera.look = (aspect) => {
    const { right, up, back } = camera.axes();
    const eye = camera.target.map((value, i) => value + camera.distance * back[i]);
    const dot = (axis) => -(axis[0] * eye[0] + axis[1] * eye[1] + axis[2] * eye[2]);
    const view = new Float32Array([
      right[0], up[0], back[0], 0, right[1], up[1], back[1], 0,
      right[2], up[2], back[2], 0, dot(right), dot(up), dot(back), 1,
    ]);
    const near = Math.max(camera.distance * 0.01, radius * 1e-4);
    const far = camera.distance + 6 * radius;
    const f = 1 / Math.tan(FIELD / 2);
    const projection = new Float32Array([
      f / aspect, 0, 0, 0, 0, f, 0, 0,
      -camera.shift, 0, (far + near) / (near - far), -1, 0, 0, 2 * far * near / (near - far), 0,
    ]);
    return { eye, near, far, matrix: multiply(projection, view) };
  };

  camera.turn = (dx, dy) => {
    camera.yaw -= dx * 0.006;
    camera.pitch = Math.min(Math.PI / 2, Math.max(-Math.PI / 2, camera.pitch + dy * 0.006));
  };

  // By pixels of a screen that is `height` of them high.
  camera.move = (dx, dy, height) => {
    const scale = 2 * camera.distance * Math.tan(FIELD / 2) / height;
    const { right, up } = camera.axes();
    camera.target = camera.target.map((value, i) => value + scale * (up[i] * dy - right[i] * dx));
  };

  // What lies under (x, y), counted in pixels from the middle of the picture, stays there.
  camera.zoom = (factor, x, y, height) => {
    const distance = Math.min(radius * 20, Math.max(radius * 1e-3, camera.distance * factor));
    const kept = 1 - distance / camera.distance;
    camera.move(-x * kept, y * kept, height);
    camera.distance = distance;
  };

  camera.state = () => ({ target: [...camera.target], distance: camera.distance, yaw: camera.yaw, pitch: camera.pitch });
  camera.home = home;
  return camera;
}
