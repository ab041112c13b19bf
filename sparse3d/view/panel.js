// The panel: what colours mean, and what is shown.

const RAMP = [[44, 52, 124], [38, 104, 178], [32, 158, 172], [88, 196, 120], [214, 214, 84], [250, 158, 58], [214, 62, 48]];

function rampColor(part) {
  const at = Math.min(RAMP.length - 1.001, Math.max(0, part * (RAMP.length - 1)));
  const [from, to, rest] = [RAMP[Math.floor(at)], RAMP[Math.floor(at) + 1], at % 1];
  return from.map((value, i) => Math.round(value + (to[i] - value) * rest));
}

// Four rows of 256 colours: classes, truth, error, ramp. The fourth byte says whether it is shown.
function makePalette(scene) {
  const palette = new Uint8Array(4 * 256 * 4).fill(255);
  scene.legends.forEach((legend) => {
    for (const { code, color } of legend.entries) palette.set(color, 4 * (256 * legend.row + code));
  });
  for (let i = 0; i < 256; i++) palette.set(rampColor(i / 255), 4 * (256 * 3 + i));
  return palette;
}

const css = (color) => `rgb(${color.join(" ")})`;
const byId = (id) => document.getElementById(id);

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function makePanel(scene, palette, settings, changed) {
  byId("title").textContent = scene.title;
  byId("about").textContent = scene.about.join("\n");
  byId("cell").textContent = scene.grid.step + (scene.ranges ? " m" : "");

  const shown = (legend, code) => palette[4 * (256 * legend.row + code) + 3] > 0;
  const show = (legend, code, on) => { palette[4 * (256 * legend.row + code) + 3] = on ? 255 : 0; };

  const legendOf = (legend) => {
    const box = element("div", undefined, "legend");
    const head = element("h2");
    head.append(element("span", legend.name));
    const rows = legend.entries.map((entry) => {
      const row = element("button", undefined, "entry");
      row.type = "button";
      const swatch = element("i");
      swatch.style.background = css(entry.color);
      row.title = `${entry.name}: click to hide or show, double click to show it alone`;
      row.append(swatch, element("span", entry.name), element("b", entry.count.toLocaleString("en")));
      row.dataset.legend = legend.name;
      row.dataset.code = entry.code;
      row.addEventListener("click", () => { show(legend, entry.code, !shown(legend, entry.code)); refresh(); });
      row.addEventListener("dblclick", () => only(entry));
      return row;
    });
    const refresh = () => {
      rows.forEach((row, i) => row.setAttribute("aria-pressed", shown(legend, legend.entries[i].code)));
      changed();
    };
    const only = (entry) => {
      for (const { code } of legend.entries) show(legend, code, entry === null || code === entry.code);
      refresh();
    };
    const none = element("button", "none");
    const all = element("button", "all");
    none.type = all.type = "button";
    all.addEventListener("click", () => only(null));
    none.addEventListener("click", () => only({ code: -1 }));
    head.append(all, none);
    box.append(head, ...rows);
    refresh();
    return box;
  };
  const boxes = scene.legends.map(legendOf);
  byId("legends").append(...boxes);

  const bar = byId("bar").getContext("2d");
  for (let i = 0; i < 256; i++) { bar.fillStyle = css(rampColor(i / 255)); bar.fillRect(i, 0, 1, 1); }

  const buttons = scene.modes.map((mode) => {
    const button = element("button", mode.name);
    button.type = "button";
    button.setAttribute("role", "radio");
    button.addEventListener("click", () => setMode(mode.name));
    return button;
  });
  byId("modes").append(...buttons);

  function setMode(name) {
    const mode = scene.modes.find((each) => each.name === name);
    settings.mode = mode.number;
    buttons.forEach((button, i) => button.setAttribute("aria-checked", scene.modes[i] === mode));
    byId("ramp").hidden = !mode.range;
    if (mode.range) {
      [byId("low").textContent, byId("high").textContent] = mode.range;
      byId("unit").textContent = mode.unit;
    }
    boxes.forEach((box, i) => { box.hidden = !mode.legends.includes(i); });
    byId("legends").prepend(...mode.legends.map((i) => boxes[i]));
    byId("legends").scrollTop = 0;
    changed();
  }

  byId("size").addEventListener("input", (event) => { settings.size = 2 ** event.target.value; changed(); });
  for (const name of ["depth", "grid"]) {
    byId(name).addEventListener("change", (event) => { settings[name] = event.target.checked; changed(); });
  }
  const fold = () => {
    const folded = byId("panel").classList.contains("folded");
    byId("fold").textContent = folded ? "+" : "\u2212";
    byId("fold").setAttribute("aria-expanded", !folded);
    changed();
  };
  byId("fold").addEventListener("click", () => { byId("panel").classList.toggle("folded"); fold(); });
  fold();
  setMode(scene.modes[0].name);
  return { setMode };
}

// What is known of one point.
function fillCard(scene, arrays, index, close) {
  const card = byId("card");
  const entryOf = (row) => {
    const legend = scene.legends.find((each) => each.row === row);
    return legend && legend.entries.find((entry) => entry.code === arrays.code[4 * index + row]);
  };
  const [own, truth, error] = [0, 1, 2].map(entryOf);
  const main = own || truth;
  const head = element("h2");
  if (main) {
    const swatch = element("i");
    swatch.style.background = css(main.color);
    head.append(swatch);
  }
  head.append(element("span", main ? main.name : "point"));
  const list = element("dl");
  const say = (name, value) => list.append(element("dt", name), element("dd", value));
  if (own && truth) say("truth", `${truth.name} (${error.name})`);
  const local = [...arrays.position.subarray(3 * index, 3 * index + 3)];
  local.forEach((value, i) => say("xyz"[i], (value + scene.offset[i]).toFixed(scene.digits)));
  if (scene.ranges) say("distance", `${Math.hypot(...local).toFixed(2)} m`);
  if (scene.intensity) {
    const [low, high] = scene.intensity;
    say("intensity", (low + (high - low) * arrays.code[4 * index + 3] / 255).toFixed(3));
  }
  say("point", (arrays.row ? arrays.row[index] : index).toLocaleString("en"));
  const shut = element("button", "\u00d7");
  shut.type = "button";
  shut.title = "Close";
  shut.addEventListener("click", close);
  card.replaceChildren(head, list, shut);
  card.hidden = false;
}
