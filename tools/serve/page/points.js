// Draws many points: WebGL where there is one, else a plain canvas. Positions are set once; colours and sizes when a search
// or a selection changes; the view (centre and scale) with every frame.
const VERTEX = `
attribute vec2 at; attribute vec4 look; uniform vec4 view; uniform float pixel; varying vec3 ink; varying float solid;
void main() {
  gl_Position = vec4((at - view.xy) * view.zw, 0.0, 1.0);
  gl_PointSize = look.w * pixel; ink = look.rgb; solid = look.w > 6.0 ? 1.0 : 0.72;
}`;
const FRAGMENT = `
precision mediump float; varying vec3 ink; varying float solid;
void main() {
  float d = length(gl_PointCoord - 0.5);
  float a = solid * smoothstep(0.5, 0.38, d);
  gl_FragColor = vec4(ink * a, a);
}`;

function shader(gl, kind, text) {
  const s = gl.createShader(kind);
  gl.shaderSource(s, text);
  gl.compileShader(s);
  return s;
}

export class Points {
  constructor(canvas) {
    this.canvas = canvas;
    this.gl = canvas.getContext("webgl", { antialias: false, premultipliedAlpha: true });
    this.n = 0;
    if (this.gl) this.program();
    else this.plain = canvas.getContext("2d");
  }

  program() {
    const gl = this.gl, p = gl.createProgram();
    gl.attachShader(p, shader(gl, gl.VERTEX_SHADER, VERTEX));
    gl.attachShader(p, shader(gl, gl.FRAGMENT_SHADER, FRAGMENT));
    gl.linkProgram(p);
    gl.useProgram(p);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    this.view = gl.getUniformLocation(p, "view");
    this.pixel = gl.getUniformLocation(p, "pixel");
    for (const [i, name, size] of [[0, "at", 2], [1, "look", 4]]) {
      const where = gl.getAttribLocation(p, name);
      this["buffer" + i] = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, this["buffer" + i]);
      gl.enableVertexAttribArray(where);
      gl.vertexAttribPointer(where, size, gl.FLOAT, false, 0, 0);
    }
  }

  // at: Float32Array (n, 2)
  setPositions(at) {
    this.at = at;
    this.n = at.length / 2;
    if (this.gl) this.upload(this.buffer0, at);
  }

  // look: Float32Array (n, 4): red, green, blue in 0..1, diameter in pixels
  setLook(look) {
    this.look = look;
    if (this.gl) this.upload(this.buffer1, look);
  }

  upload(buffer, data) {
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, buffer);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, data, this.gl.DYNAMIC_DRAW);
  }

  // v: { x, y, scale } centre in map units, pixels per unit
  draw(v, width, height, ratio) {
    const c = this.canvas, w = Math.round(width * ratio), h = Math.round(height * ratio);
    if (c.width !== w || c.height !== h) { c.width = w; c.height = h; }
    if (!this.n) return;
    if (!this.gl) return this.drawPlain(v, width, height, ratio);
    const gl = this.gl;
    gl.viewport(0, 0, w, h);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.uniform4f(this.view, v.x, v.y, 2 * v.scale / width, -2 * v.scale / height);
    gl.uniform1f(this.pixel, ratio);
    gl.drawArrays(gl.POINTS, 0, this.n);
  }

  drawPlain(v, width, height, ratio) {
    const c = this.plain;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    for (let i = 0; i < this.n; i++) {
      const x = (this.at[2 * i] - v.x) * v.scale + width / 2, y = (this.at[2 * i + 1] - v.y) * v.scale + height / 2, d = this.look[4 * i + 3];
      if (x < -d || y < -d || x > width + d || y > height + d) continue;
      c.fillStyle = `rgb(${255 * this.look[4 * i]} ${255 * this.look[4 * i + 1]} ${255 * this.look[4 * i + 2]})`;
      c.fillRect(x - d / 2, y - d / 2, d, d);
    }
  }
}
