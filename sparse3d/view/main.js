// Hands and eyes: pointers, keys, frames.

const scene = JSON.parse(byId("scene").textContent);
const arrays = {};
for (const node of document.querySelectorAll("script[data-array]")) {
  const text = atob(node.textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const kind = { float32: Float32Array, uint32: Uint32Array, uint8: Uint8Array }[node.dataset.kind];
  arrays[node.dataset.array] = new kind(bytes.buffer);
  node.remove();
}

const canvas = byId("canvas");
const settings = { mode: 0, size: 1, depth: true, grid: true };
const palette = makePalette(scene);
scene.home.distance /= Math.min(1, Math.max(0.5, canvas.clientWidth / canvas.clientHeight));
if (canvas.clientWidth < 640) byId("panel").classList.add("folded");
const camera = makeCamera(scene.home, scene.radius);
let renderer, view, picked = -1, waiting = false, flight = null;
try {
  renderer = makeRenderer(canvas, arrays, scene, palette);
} catch (error) {
  byId("failure").textContent = error.message;
  byId("failure").hidden = false;
  throw error;
}

function changed() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame((now) => {
    waiting = false;
    if (flight) fly(now);
    const panel = byId("panel").getBoundingClientRect();
    const beside = !byId("panel").classList.contains("folded") && panel.width < canvas.clientWidth / 2;
    camera.shift = beside ? panel.right / canvas.clientWidth : 0;
    view = renderer.draw(camera, settings);
    placeRing();
  });
}

// Clip coordinates of a point: x, y in [-1, 1] and its distance; null behind the eye or hidden.
function project(index, matrix) {
  for (let row = 0; row < 3; row++) {
    if (!palette[4 * (256 * row + arrays.code[4 * index + row]) + 3]) return null;
  }
  const [x, y, z] = [arrays.position[3 * index], arrays.position[3 * index + 1], arrays.position[3 * index + 2]];
  const w = matrix[3] * x + matrix[7] * y + matrix[11] * z + matrix[15];
  if (w <= 0) return null;
  return [
    (matrix[0] * x + matrix[4] * y + matrix[8] * z + matrix[12]) / w,
    (matrix[1] * x + matrix[5] * y + matrix[9] * z + matrix[13]) / w,
    w,
  ];
}

// The point under a place of the page: of those near it on the screen, the one in front.
function pointAt(x, y, reach) {
  const [w, h] = [canvas.clientWidth, canvas.clientHeight];
  const count = arrays.position.length / 3;
  let best = -1, least = Infinity;
  for (let i = 0; i < count; i++) {
    const place = project(i, view.matrix);
    if (!place) continue;
    const off = Math.hypot((place[0] + 1) / 2 * w - x, (1 - place[1]) / 2 * h - y) / reach;
    if (off > 1) continue;
    const score = place[2] * (1 + off);
    if (score < least) { least = score; best = i; }
  }
  return best;
}

function placeRing() {
  const place = picked < 0 ? null : project(picked, view.matrix);
  byId("ring").hidden = !place;
  if (!place) return;
  byId("ring").style.left = `${(place[0] + 1) / 2 * canvas.clientWidth}px`;
  byId("ring").style.top = `${(1 - place[1]) / 2 * canvas.clientHeight}px`;
}

function pick(index) {
  picked = index;
  if (index < 0) byId("card").hidden = true;
  else fillCard(scene, arrays, index, () => pick(-1));
  changed();
}

function goTo(goal) {
  const turn = Math.round((camera.yaw - (goal.yaw ?? camera.yaw)) / (2 * Math.PI)) * 2 * Math.PI;
  const end = { ...camera.state(), ...goal };
  end.yaw += goal.yaw === undefined ? 0 : turn;
  if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) Object.assign(camera, end);
  else flight = { from: camera.state(), end, start: performance.now() };
  changed();
}

function fly(now) {
  const part = Math.min(1, Math.max(0, (now - flight.start) / 350));
  const soft = part * part * (3 - 2 * part);
  const { from, end } = flight;
  const between = (a, b) => a + (b - a) * soft;
  camera.target = from.target.map((value, i) => between(value, end.target[i]));
  for (const name of ["distance", "yaw", "pitch"]) camera[name] = between(from[name], end[name]);
  if (part === 1) flight = null;
  else changed();
}

const fingers = new Map();
let travelled = 0;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  canvas.classList.add("moving");
  fingers.set(event.pointerId, event);
  if (fingers.size === 1) travelled = 0;
  else travelled = Infinity;
  flight = null;
});
canvas.addEventListener("pointermove", (event) => {
  const before = fingers.get(event.pointerId);
  if (!before) return;
  const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
  travelled += Math.hypot(dx, dy);
  if (fingers.size === 1) {
    const moves = event.buttons & 6 || event.shiftKey || event.ctrlKey || event.metaKey;
    if (moves) camera.move(dx, dy, canvas.clientHeight);
    else camera.turn(dx, dy);
  } else {
    const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
    const span = (at) => Math.hypot(at.clientX - other.clientX, at.clientY - other.clientY);
    camera.move(dx / 2, dy / 2, canvas.clientHeight);
    zoomAt(span(before) / Math.max(span(event), 1), (event.clientX + other.clientX) / 2, (event.clientY + other.clientY) / 2);
  }
  fingers.set(event.pointerId, event);
  changed();
});
for (const name of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(name, (event) => {
    fingers.delete(event.pointerId);
    canvas.classList.toggle("moving", fingers.size > 0);
    if (name === "pointerup" && travelled < 5 && event.button === 0) {
      pick(pointAt(event.clientX, event.clientY, event.pointerType === "touch" ? 16 : 8));
    }
  });
}
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("dblclick", (event) => {
  const index = pointAt(event.clientX, event.clientY, 12);
  if (index >= 0) goTo({ target: [...arrays.position.subarray(3 * index, 3 * index + 3)], distance: camera.distance / 2 });
});

function zoomAt(factor, x, y) {
  camera.zoom(factor, x - canvas.clientWidth / 2 * (1 + camera.shift), canvas.clientHeight / 2 - y, canvas.clientHeight);
}
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const lines = event.deltaY * (event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1);
  zoomAt(Math.exp(Math.min(200, Math.max(-200, lines)) * 0.0016), event.clientX, event.clientY);
  changed();
}, { passive: false });

const above = () => goTo({ pitch: Math.PI / 2, yaw: -Math.PI / 2, target: [...scene.home.target], distance: scene.home.distance });
byId("home").addEventListener("click", () => goTo(scene.home));
byId("top").addEventListener("click", above);
const panel = makePanel(scene, palette, settings, changed);
window.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "INPUT") return;
  const step = canvas.clientHeight / 12;
  const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[event.key];
  if (moves) camera.move(...moves, canvas.clientHeight);
  else if (event.key === "+" || event.key === "=") camera.zoom(0.85, 0, 0, canvas.clientHeight);
  else if (event.key === "-") camera.zoom(1 / 0.85, 0, 0, canvas.clientHeight);
  else if (event.key === "r") goTo(scene.home);
  else if (event.key === "t") above();
  else if (event.key === "Escape") pick(-1);
  else if (scene.modes[event.key - 1]) panel.setMode(scene.modes[event.key - 1].name);
  else return;
  event.preventDefault();
  changed();
});
new ResizeObserver(changed).observe(canvas);

// For tests and for the curious.
window.sparse3dView = {
  scene,
  points: arrays.position.length / 3,
  setMode: panel.setMode,
  pick,
  camera: () => camera.state(),
  place: (index) => {
    const at = project(index, view.matrix);
    return at && [(at[0] + 1) / 2 * canvas.clientWidth, (1 - at[1]) / 2 * canvas.clientHeight];
  },
  // Milliseconds a frame, drawn to the end, over so many frames while turning.
  time: (frames) => {
    const start = performance.now();
    for (let i = 0; i < frames; i++) { camera.turn(8, 0); view = renderer.draw(camera, settings); renderer.finish(); }
    changed();
    return (performance.now() - start) / frames;
  },
};
changed();
