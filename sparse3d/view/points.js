// The points on the graphics card: coloured by one of several columns, then shaded by depth.

const VERTEX = `#version 300 es
precision highp float;
precision highp int;
uniform mat4 matrix;
uniform vec2 heights;
uniform vec2 sizes;      // pixels at distance 1, and at least
uniform int mode;        // 0 class, 1 truth, 2 error, 3 colour, 4 intensity, 5 height
uniform sampler2D palette;
in vec3 position;
in uvec4 code;           // class, truth, error, intensity
in vec3 paint;
out vec3 color;
void main() {
  vec4 own = texelFetch(palette, ivec2(code.x, 0), 0);
  vec4 truth = texelFetch(palette, ivec2(code.y, 1), 0);
  vec4 error = texelFetch(palette, ivec2(code.z, 2), 0);
  if (own.a * truth.a * error.a < 0.5) {
    gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
    gl_PointSize = 1.0;
    return;
  }
  float step = mode == 4 ? float(code.w) : 255.0 * clamp((position.z - heights.x) / max(heights.y - heights.x, 1e-6), 0.0, 1.0);
  vec4 ramp = texelFetch(palette, ivec2(int(step + 0.5), 3), 0);
  color = mode == 0 ? own.rgb : mode == 1 ? truth.rgb : mode == 2 ? error.rgb : mode == 3 ? paint : ramp.rgb;
  gl_Position = matrix * vec4(position, 1.0);
  gl_PointSize = clamp(sizes.x / gl_Position.w, sizes.y, 48.0);
}`;

const FRAGMENT = `#version 300 es
precision mediump float;
in vec3 color;
out vec4 pixel;
void main() {
  vec2 off = gl_PointCoord - 0.5;
  if (dot(off, off) > 0.27) discard;
  pixel = vec4(color, 1.0);
}`;

const LINE_VERTEX = `#version 300 es
uniform mat4 matrix;
in vec4 place;           // x, y, z, strength
out float strength;
void main() {
  gl_Position = matrix * vec4(place.xyz, 1.0);
  strength = place.w;
}`;

const LINE_FRAGMENT = `#version 300 es
precision mediump float;
in float strength;
out vec4 pixel;
void main() { pixel = vec4(vec3(0.85, 0.9, 1.0) * strength, strength); }`;

const SCREEN_VERTEX = `#version 300 es
out vec2 at;
void main() {
  at = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0;
  gl_Position = vec4(at * 2.0 - 1.0, 0.0, 1.0);
}`;

// A pixel is darkened by how far its neighbours stand in front of it.
const SCREEN_FRAGMENT = `#version 300 es
precision highp float;
uniform sampler2D image;
uniform highp sampler2D depths;
uniform vec2 planes;
uniform float strength;
uniform float reach;
in vec2 at;
out vec4 pixel;
float away(vec2 place) {
  float depth = texture(depths, place).r * 2.0 - 1.0;
  return log2(2.0 * planes.x * planes.y / (planes.y + planes.x - depth * (planes.y - planes.x)));
}
void main() {
  vec4 front = texture(image, at);
  vec3 back = mix(vec3(0.31, 0.34, 0.405), vec3(0.205, 0.226, 0.276), smoothstep(0.0, 1.0, at.y));
  vec3 color = back * (1.0 - front.a) + front.rgb;
  if (strength > 0.0 && texture(depths, at).r < 1.0) {
    float here = away(at);
    vec2 step = reach / vec2(textureSize(depths, 0));
    float sum = 0.0;
    for (int i = 0; i < 8; i++) {
      float angle = 0.7853982 * float(i);
      sum += clamp(here - away(at + step * vec2(cos(angle), sin(angle))), 0.0, 0.25);
    }
    color *= exp(-strength * sum / 8.0);
  }
  pixel = vec4(color, 1.0);
}`;

function compile(gl, vertex, fragment) {
  const program = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
  const at = {};
  for (let i = 0; i < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); i++) {
    const { name } = gl.getActiveUniform(program, i);
    at[name] = gl.getUniformLocation(program, name);
  }
  return { program, at };
}

function attribute(gl, program, name, data, size, integer) {
  const location = gl.getAttribLocation(program, name);
  gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
  gl.enableVertexAttribArray(location);
  if (integer) gl.vertexAttribIPointer(location, size, gl.UNSIGNED_BYTE, 0, 0);
  else gl.vertexAttribPointer(location, size, data instanceof Float32Array ? gl.FLOAT : gl.UNSIGNED_BYTE, true, 0, 0);
}

function makeRenderer(canvas, arrays, scene, palette) {
  const gl = canvas.getContext("webgl2", { antialias: false, alpha: false, powerPreference: "high-performance" });
  if (!gl) throw new Error("This page needs WebGL 2, which this browser does not offer.");
  const count = arrays.position.length / 3;
  const points = compile(gl, VERTEX, FRAGMENT);
  const lines = compile(gl, LINE_VERTEX, LINE_FRAGMENT);
  const screen = compile(gl, SCREEN_VERTEX, SCREEN_FRAGMENT);

  const cloud = gl.createVertexArray();
  gl.bindVertexArray(cloud);
  attribute(gl, points.program, "position", arrays.position, 3, false);
  attribute(gl, points.program, "code", arrays.code, 4, true);
  if (arrays.paint) attribute(gl, points.program, "paint", arrays.paint, 3, false);

  const net = gridLines(scene);
  const mesh = gl.createVertexArray();
  gl.bindVertexArray(mesh);
  attribute(gl, lines.program, "place", net, 4, false);
  const nothing = gl.createVertexArray();

  const texture = () => {
    const made = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, made);
    for (const side of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, side, gl.NEAREST);
    for (const side of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, side, gl.CLAMP_TO_EDGE);
    return made;
  };
  const colors = texture(), image = texture(), depths = texture();
  const frame = gl.createFramebuffer();
  let width = 0, height = 0;

  const fit = (ratio) => {
    const [w, h] = [Math.max(1, Math.round(canvas.clientWidth * ratio)), Math.max(1, Math.round(canvas.clientHeight * ratio))];
    if (w === width && h === height) return;
    [width, height] = [canvas.width, canvas.height] = [w, h];
    gl.bindTexture(gl.TEXTURE_2D, image);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, w, h, 0, gl.RGBA, gl.UNSIGNED_BYTE, null);
    gl.bindTexture(gl.TEXTURE_2D, depths);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.DEPTH_COMPONENT24, w, h, 0, gl.DEPTH_COMPONENT, gl.UNSIGNED_INT, null);
    gl.bindFramebuffer(gl.FRAMEBUFFER, frame);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, image, 0);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.DEPTH_ATTACHMENT, gl.TEXTURE_2D, depths, 0);
  };

  const drawGrid = (view) => {
    gl.useProgram(lines.program);
    gl.uniformMatrix4fv(lines.at.matrix, false, view.matrix);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.depthMask(false);
    gl.bindVertexArray(mesh);
    gl.drawArrays(gl.LINES, 0, net.length / 4);
    gl.depthMask(true);
    gl.disable(gl.BLEND);
  };

  const draw = (camera, settings) => {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    fit(ratio);
    const view = camera.look(width / height);
    gl.bindTexture(gl.TEXTURE_2D, colors);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, 256, 4, 0, gl.RGBA, gl.UNSIGNED_BYTE, palette);
    gl.bindFramebuffer(gl.FRAMEBUFFER, frame);
    gl.viewport(0, 0, width, height);
    gl.enable(gl.DEPTH_TEST);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.useProgram(points.program);
    gl.uniformMatrix4fv(points.at.matrix, false, view.matrix);
    gl.uniform2fv(points.at.heights, scene.heights);
    gl.uniform2f(points.at.sizes, settings.size * scene.spacing * height / Math.tan(FIELD / 2), Math.max(1, 1.3 * ratio * Math.min(settings.size, 2)));
    gl.uniform1i(points.at.mode, settings.mode);
    gl.uniform1i(points.at.palette, 0);
    gl.bindVertexArray(cloud);
    gl.drawArrays(gl.POINTS, 0, count);
    if (settings.grid) drawGrid(view);
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    gl.viewport(0, 0, width, height);
    gl.disable(gl.DEPTH_TEST);
    gl.useProgram(screen.program);
    gl.bindVertexArray(nothing);
    for (const [unit, what] of [[0, image], [1, depths]]) {
      gl.activeTexture(gl.TEXTURE0 + unit);
      gl.bindTexture(gl.TEXTURE_2D, what);
    }
    gl.activeTexture(gl.TEXTURE0);
    gl.uniform1i(screen.at.image, 0);
    gl.uniform1i(screen.at.depths, 1);
    gl.uniform2f(screen.at.planes, view.near, view.far);
    gl.uniform1f(screen.at.strength, settings.depth ? 9 : 0);
    gl.uniform1f(screen.at.reach, 1.4 * ratio);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    return view;
  };
  return { draw, finish: () => gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4)) };
}

// Lines every `grid.step` around the middle of the scene that fade towards the rim.
function gridLines(scene) {
  const { step, z, middle, radius } = scene.grid;
  const reach = Math.ceil(radius / step);
  const [x0, y0] = middle.map((value) => Math.round(value / step) * step);
  const out = [];
  const strength = (i, j) => 0.3 * Math.max(0, 1 - Math.hypot(i, j) / reach);
  for (let i = -reach; i <= reach; i++) {
    for (let j = -reach; j < reach; j++) {
      const [a, b] = [strength(i, j), strength(i, j + 1)];
      if (a + b === 0) continue;
      out.push(x0 + i * step, y0 + j * step, z, a, x0 + i * step, y0 + (j + 1) * step, z, b);
      out.push(x0 + j * step, y0 + i * step, z, a, x0 + (j + 1) * step, y0 + i * step, z, b);
    }
  }
  return new Float32Array(out);
}
