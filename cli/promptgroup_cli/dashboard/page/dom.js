// Nodes and texts. What a cluster tells becomes text nodes and attributes of drawings, never markup.

const page = { chosen: "", jumps: false, marked: "", paused: false, view: null };

function byId(id) {
  return document.getElementById(id);
}

function make(name, attributes, ...children) {
  return built(document.createElement(name), attributes, children);
}

function draw(name, attributes, ...children) {
  return built(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function built(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) if (value !== null) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Replaces what is inside a node where what it is made from has changed, so that a selection in it lasts.
const shown = new WeakMap();

function show(node, from, children) {
  const key = JSON.stringify(from);
  if (shown.get(node) === key) return;
  shown.set(node, key);
  node.replaceChildren(...children());
}

// Fills a table. A head is a text, or {text, kind}; a cell is a text, or {text, kind, node}. Cells keep their place.
function fill(table, caption, heads, rows) {
  if (!table.tHead) {
    table.append(make("caption", { class: "unseen" }), make("thead"), make("tbody"));
    say(table.caption, caption);
  }
  show(table.tHead, heads, () => [
    make("tr", null, ...heads.map((head) => make("th", { scope: "col", class: head.kind || null }, head.text ?? head))),
  ]);
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.lastChild.remove();
  rows.forEach((cells, place) => {
    const row = body.rows[place] || body.appendChild(make("tr"));
    while (row.cells.length > cells.length) row.lastChild.remove();
    cells.forEach((cell, index) => {
      const at = row.cells[index] || row.appendChild(make("td"));
      const kind = cell.kind || heads[index].kind || "";
      if (at.className !== kind) at.className = kind;
      if (cell.node) {
        if (at.firstChild !== cell.node) at.replaceChildren(cell.node);
      } else say(at, cell.text ?? cell);
    });
  });
  return [...body.rows];
}

const number = (text) => ({ text, kind: "number" });
const code = (text) => ({ text, kind: "code" });

function percent(share, digits = 1) {
  return share === null ? "–" : `${(100 * share).toFixed(digits)} %`;
}

function seconds(value) {
  if (value === null) return "–";
  if (value < 1) return `${Math.round(1000 * value)} ms`;
  return `${value.toFixed(value < 10 ? 1 : 0)} s`;
}

function span(seconds) {
  return seconds < 120 ? `${Math.round(seconds)}\u00a0s` : `${Math.round(seconds / 60)}\u00a0min`;
}

function rate(value) {
  return value === null ? "–" : value.toFixed(value < 10 ? 1 : 0);
}

function count(value) {
  return value === null ? "–" : Math.round(value).toLocaleString("en");
}

function plural(value, one, many) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

function clock(at) {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? "–" : time.toLocaleTimeString("en-GB");
}

const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
