// Lines over time. The details below them have the same figures as a table.

const LEFT = 52, RIGHT = 34, TOP = 8, BOTTOM = 18;

function nice(highest) {
  if (!(highest > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(highest));
  return unit * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((each) => each * unit >= highest);
}

function linePath(values, x, y) {
  let path = "", pen = false;
  values.forEach((value, index) => {
    if (value === null) pen = false;
    else {
      path += `${pen ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = true;
    }
  });
  return path;
}

function last(values) {
  for (let index = values.length - 1; index >= 0; index--) if (values[index] !== null) return index;
  return -1;
}

function summary(title, lines, write) {
  const parts = lines.map(({ name, values }) => {
    const known = values.filter((value) => value !== null);
    if (!known.length) return `${name || title}: nothing known yet`;
    return `${name || title}: now ${write(known[known.length - 1])}, lowest ${write(Math.min(...known))}, highest ${write(Math.max(...known))}`;
  });
  return parts.join(". ");
}

function chartOf(id, title) {
  const output = make("output", null, "–");
  const canvas = draw("svg", { role: "img" });
  const node = make("div", { class: "chart", id }, make("h4", null, make("span", null, title), output), canvas);
  node.parts = { output, canvas, title };
  canvas.addEventListener("pointermove", (event) => { node.pointer = event.offsetX; node.redraw(); });
  canvas.addEventListener("pointerleave", () => { node.pointer = null; node.redraw(); });
  node.redraw = () => {};
  byId("charts").append(node);
  return node;
}

function plot(node, at, lines, { write, top = null, bottom = 0 }) {
  node.redraw = () => paint(node, at, lines, write, top, bottom);
  node.redraw();
}

function paint(node, at, lines, write, top, bottom) {
  const { canvas, output, title } = node.parts;
  const width = canvas.clientWidth || 480, height = canvas.clientHeight || 100;
  const known = lines.flatMap(({ values }) => values.filter((value) => value !== null));
  const high = top ?? nice(Math.max(0, ...known)), low = bottom;
  const times = at.map((each) => new Date(each).getTime());
  const began = times[0], span = Math.max(60000, times[times.length - 1] - began || 0), end = times[times.length - 1];
  const x = (index) => LEFT + (width - LEFT - RIGHT) * (1 - (end - times[index]) / span);
  const y = (value) => TOP + (height - TOP - BOTTOM) * (1 - (Math.min(high, Math.max(low, value)) - low) / (high - low));
  canvas.setAttribute("aria-label", summary(title, lines, write));
  const nodes = [];
  for (const value of [low, (low + high) / 2, high]) {
    nodes.push(draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      draw("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, write(value)));
  }
  const ago = span < 90000 ? `${Math.round(span / 1000)} s ago` : `${Math.round(span / 60000)} min ago`;
  nodes.push(draw("text", { x: LEFT, y: height - 3 }, ago), draw("text", { x: width - RIGHT, y: height - 3, "text-anchor": "end" }, "now"));
  lines.forEach(({ name, values }, place) => {
    const kind = place ? " second" : "", path = linePath(values, x, y), tip = last(values);
    if (tip < 0) return;
    if (lines.length === 1 && path.indexOf("M", 1) < 0)
      nodes.push(draw("path", { class: "area", d: `${path}L${x(tip).toFixed(1)} ${y(low)}L${x(values.findIndex((value) => value !== null)).toFixed(1)} ${y(low)}Z` }));
    nodes.push(draw("path", { class: `line${kind}`, d: path }), draw("circle", { class: kind.trim() || null, cx: x(tip), cy: y(values[tip]), r: 2.75 }));
    if (name) nodes.push(draw("text", { class: `name ${place ? "second" : "first"}`, x: x(tip) + 7, y: y(values[tip]) + 4 }, name));
  });
  let told = lines.map(({ values }) => (last(values) < 0 ? "–" : write(values[last(values)]))).join(" / ");
  if (node.pointer != null && times.length) {
    let near = 0;
    times.forEach((_, index) => { if (Math.abs(x(index) - node.pointer) < Math.abs(x(near) - node.pointer)) near = index; });
    nodes.push(draw("line", { class: "cursor", x1: x(near), x2: x(near), y1: TOP, y2: height - BOTTOM }));
    told = `${clock(at[near])}  ${lines.map(({ values }) => (values[near] === null ? "–" : write(values[near]))).join(" / ")}`;
  }
  say(output, told);
  canvas.replaceChildren(...nodes);
}

function sparkline(values) {
  const known = values.filter((value) => value !== null);
  const words = known.length ? `lately ${percent(Math.min(...known))} to ${percent(Math.max(...known))}` : "not known lately";
  const x = (index) => 1 + (102 * index) / Math.max(1, values.length - 1), y = (value) => 22 - 20 * value;
  return draw("svg", { class: "spark", viewBox: "0 0 104 24", preserveAspectRatio: "none", role: "img", "aria-label": words },
    draw("path", { d: linePath(values, x, y), "vector-effect": "non-scaling-stroke" }));
}
