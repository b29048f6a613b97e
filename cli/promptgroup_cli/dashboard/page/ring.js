// A revision's ring: an arc for each slot by its share of keys, filled by the KV that live sessions hold, with its
// requests in flight outside. Sessions that move fly along its inside. The table of replicas says the same.

const INNER = 84, OUTER = 116, BAND = [121, 127], LABEL = 141, GAP = 0.012, LEAST = 0.16;
const ROUTE = INNER - 3, PASS = 68; // where a session's way begins and ends, and how far from the middle it keeps

function point(radius, angle) {
  return `${(radius * Math.sin(angle)).toFixed(2)} ${(-radius * Math.cos(angle)).toFixed(2)}`;
}

function sector(from, to, inner, outer) {
  const end = Math.min(to, from + 2 * Math.PI - 0.0001);
  const large = end - from > Math.PI ? 1 : 0;
  return `M ${point(outer, from)} A ${outer} ${outer} 0 ${large} 1 ${point(outer, end)} ` +
    `L ${point(inner, end)} A ${inner} ${inner} 0 ${large} 0 ${point(inner, from)} Z`;
}

// The shorter way around the middle, where the ring's figures are: a curve whose top is PASS away from it.
function way(from, to) {
  let turn = (to - from) % (2 * Math.PI);
  if (turn > Math.PI) turn -= 2 * Math.PI;
  if (turn < -Math.PI) turn += 2 * Math.PI;
  const bend = 2 * Math.max(PASS, ROUTE * Math.cos(turn / 2)) - ROUTE * Math.cos(turn / 2);
  return `M ${point(ROUTE, from)} Q ${point(bend, from + turn / 2)} ${point(ROUTE, to)}`;
}

// Slots without keys get a narrow arc, so that they are seen.
function arcs(slots) {
  const least = Math.min(LEAST, Math.PI / Math.max(1, slots.length));
  const without = slots.filter((slot) => !slot.share).length * least;
  let angle = 0;
  return slots.map((slot) => {
    const from = angle;
    angle += slot.share ? slot.share * (2 * Math.PI - without) : least;
    return { slot, from: from + GAP, to: Math.max(from + GAP + 0.001, angle - GAP), middle: (from + angle) / 2 };
  });
}

function slotWords(slot) {
  const name = slot.slot === null ? `Pod ${slot.pod}` : `Slot ${slot.slot}`;
  const parts = [slot.warm === "warm" ? "warm" : slot.warm === "absent" ? "without a pod" : "not warm"];
  if (slot.share) parts.push(`${percent(slot.share)} of the keys`);
  if (slot.sessions !== null) parts.push(plural(slot.sessions, "session", "sessions"), `${percent(slot.kv, 0)} of its KV cache`);
  if (slot.inFlight !== null) parts.push(plural(slot.inFlight, "request", "requests"));
  return `${name}: ${parts.join(", ")}`;
}

function arcOf(arc, revision, group, busiest) {
  const { slot, from, to, middle } = arc;
  const label = `${group.label}/${revision.revision}/${slot.slot}`;
  const marked = label === page.marked ? " marked" : "";
  const state = slot.state === "Draining" || slot.state === "Terminating" ? " draining" : "";
  const node = draw("g", { class: `${slot.warm}${state}${marked}` }, draw("title", null, slotWords(slot)));
  node.append(draw("path", { class: "key", d: sector(from, to, INNER, OUTER) }));
  if (slot.warm === "cold") node.append(draw("path", { class: "hatch", d: sector(from, to, INNER, OUTER) }));
  const filled = Math.min(1, slot.kv || 0);
  if (filled > 0.004) node.append(draw("path", { class: "kv", d: sector(from, to, INNER, INNER + filled * (OUTER - INNER)) }));
  node.append(draw("path", { class: "track", d: sector(from, to, ...BAND) }));
  const load = Math.min(1, (slot.inFlight || 0) / busiest);
  if (load > 0) node.append(draw("path", { class: "load", d: sector(from, from + load * (to - from), ...BAND) }));
  if (to - from > 0.1) {
    const [x, y] = point(LABEL, middle).split(" ");
    node.append(draw("text", { class: "slot", x, y }, slot.slot === null ? "·" : String(slot.slot)));
  }
  return node;
}

function drawRing(revision, group, alone) {
  const laid = arcs(revision.slots);
  const busiest = Math.max(4, ...group.revisions.flatMap((each) => each.slots.map((slot) => slot.inFlight || 0)));
  const words = `Ring of revision ${revision.revision}: ${revision.slots.map(slotWords).join(". ")}`;
  const root = draw("svg", { class: "ring", viewBox: "-152 -152 304 304", role: "img", "aria-label": words });
  const pattern = draw("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    draw("line", { class: "hatch-line", x1: 0, y1: 0, x2: 0, y2: 5 }));
  root.append(draw("defs", null, pattern));
  for (const arc of laid) root.append(arcOf(arc, revision, group, busiest));
  const big = alone && group.hitRate !== null ? percent(group.hitRate) : `${revision.ready}/${revision.replicas}`;
  const small = alone && group.hitRate !== null ? `hits, ${span(page.view.window)}` : "slots take requests";
  root.append(draw("text", { class: "big", y: 4 }, big), draw("text", { class: "small", y: 25 }, small));
  return { root, laid };
}

function fly(drawn, group) {
  for (const move of group.moves) {
    for (const { root, laid, revision } of drawn) {
      const at = (label) => laid.find((arc) => `${group.label}/${revision}/${arc.slot.slot}` === label);
      const from = at(move.from), to = at(move.to);
      if (!from || !to) continue;
      const path = draw("path", { class: "move", pathLength: 100, d: way(from.middle, to.middle) });
      root.append(path);
      const frames = calm.matches
        ? [{ opacity: 0.8 }, { opacity: 0 }]
        : [{ strokeDasharray: "0 100", strokeDashoffset: 0, opacity: 1 },
           { strokeDasharray: "22 100", strokeDashoffset: -40, opacity: 1, offset: 0.5 },
           { strokeDasharray: "0 100", strokeDashoffset: -100, opacity: 0.6 }];
      path.animate(frames, { duration: calm.matches ? 4000 : 1500, easing: "ease-in-out" }).finished.then(() => path.remove(), () => path.remove());
    }
  }
}

function showRings(group) {
  const ringed = group.revisions.filter((revision) => revision.slots.length);
  const drawn = [];
  const box = byId("rings");
  const from = [ringed, page.marked, group.hitRate];
  show(box, from, () => ringed.map((revision) => {
    const ring = drawRing(revision, group, ringed.length === 1);
    drawn.push({ ...ring, revision: revision.revision });
    const phase = revision.phase ? `${revision.phase}, ` : "";
    return make("figure", null, ring.root,
      make("figcaption", null, make("span", { class: "code" }, revision.revision), `: ${phase}weight ${revision.weight} of 100`));
  }));
  if (drawn.length) box.drawn = drawn;
  if (!ringed.length) show(box, "none", () => [make("p", { class: "soft" }, "No replica holds a slot yet.")]);
  else fly(box.drawn || [], group);
}
