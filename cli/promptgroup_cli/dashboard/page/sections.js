// The sections of the page, each from its part of the view.

const STATES = { Ready: "Ready", Note: "Ready, with a note", Releasing: "Releasing", Warming: "Warming", NotReady: "Not ready", Unknown: "Not known" };
const buttons = new Map(), pills = new WeakMap();

function pill(state) {
  return make("span", { class: `pill ${state}` }, STATES[state] || state);
}

function pillIn(row, state) {
  const known = pills.get(row);
  if (known && known.state === state) return known.node;
  const node = pill(state);
  pills.set(row, { state, node });
  return node;
}

function groupButton(label, name) {
  if (!buttons.has(label)) {
    const made = make("button", { type: "button" });
    made.addEventListener("click", () => choose(label));
    buttons.set(label, made);
  }
  const button = buttons.get(label);
  say(button, name);
  return button;
}

function groupHeads(view) {
  return ["Group", "State", { text: "Warm", kind: "number" }, { text: "Requests/s", kind: "number" },
    { text: `Hits, ${span(view.window)}`, kind: "number" }, { text: `Hits, ${span(view.statusWindow)}`, kind: "number" }, "Lately",
    { text: "First token p50", kind: "number" }, { text: "p99", kind: "number" }, { text: "In flight", kind: "number" }, { text: "Waiting", kind: "number" }];
}

// What decides the order of two groups; they come in that of their states, the worst first.
const ORDERS = {
  worst: () => 0,
  name: (one, other) => (one.label < other.label ? -1 : 1),
  requests: (one, other) => (other.requestsPerSecond ?? -1) - (one.requestsPerSecond ?? -1),
  hits: (one, other) => hitsOf(one) - hitsOf(other),
};

function hitsOf(group) {
  return group.hitRate ?? group.statusHitRate ?? 2;
}

// Every word must be found somewhere in a group's name, model, state or reason.
function foundGroups(groups, text, namespace, order) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const said = (group) => [group.label, group.model, STATES[group.state], group.reason || ""].join(" ").toLowerCase();
  const found = groups.filter((group) => (!namespace || group.namespace === namespace) && words.every((word) => said(group).includes(word)));
  return found.sort(ORDERS[order] || ORDERS.worst);
}

function showNamespaces(view) {
  const names = [...new Set(view.groups.map((group) => group.namespace))].sort();
  const select = byId("namespaces");
  show(select, names, () => ["", ...names].map((name) => make("option", { value: name, selected: name === select.value ? "" : null }, name || "all")));
  select.hidden = select.labels[0].hidden = names.length < 2;
}

function showCount(view, found) {
  const more = view.moreGroups ? `; ${count(view.moreGroups)} more, in better states, are not read` : "";
  say(byId("groups-count"), view.groups.length > 1 ? `${count(found.length)} of ${plural(view.groups.length, "group", "groups")}${more}` : "");
}

function noGroups(view) {
  if (view.groups.length) return "No group has all of these words.";
  if (view.clusterAsked) return view.namespace ? "There is no PromptGroup in this namespace." : "There is no PromptGroup.";
  return view.routersHeard ? "The routers that were asked know no group. Which PromptGroups there are is not known: no cluster is asked." : "Not known: no router answers, and no cluster is asked.";
}

function showGroups(view) {
  const chosen = view.group ? view.group.label : "";
  showNamespaces(view);
  const found = foundGroups([...view.groups], byId("words").value, byId("namespaces").value, byId("order").value);
  showCount(view, found);
  const several = new Set(view.groups.map((group) => group.namespace)).size > 1;
  const rows = found.map((group) => [
    { node: groupButton(group.label, several ? group.label : group.name) },
    { node: pillIn(groupButton(group.label, several ? group.label : group.name), group.state) },
    number(group.warm || "–"), number(rate(group.requestsPerSecond)), number(percent(group.hitRate)), number(percent(group.statusHitRate, 0)),
    { node: sparkline(group.trend) },
    number(seconds(group.ttftP50)), number(seconds(group.ttftP99)), number(count(group.inFlight)), number(count(group.waiting)),
  ]);
  if (view.withoutGroup) {
    const rest = view.withoutGroup;
    rows.push([{ text: "(no group)", kind: "soft" }, "", "", number(rate(rest.requestsPerSecond)), number(percent(rest.hitRate)), "", "",
      number(seconds(rest.ttftP50)), number(seconds(rest.ttftP99)), number(count(rest.inFlight)), number(count(rest.waiting))]);
  }
  fill(byId("groups"), "The groups; choose one to see it below", groupHeads(view), rows).forEach((row, place) => {
    const current = place < found.length && found[place].label === chosen;
    if (current) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  });
  byId("groups").hidden = !rows.length;
  byId("groups-none").hidden = found.length > 0;
  say(byId("groups-none"), noGroups(view));
  byId("find").hidden = view.groups.length < 2;
}

function showTitle(group, view) {
  say(byId("group-title"), group.label);
  const host = group.host ? [`on replicas of ${group.host}`] : [];
  const guests = group.guests.length ? [`serves ${group.guests.join(", ")}`] : [];
  say(byId("group-model"), [[group.model, ...group.aliases].join(", also "), ...host, ...guests].join("; "));
  show(byId("group-state"), [group.state, group.reason], () =>
    [pill(group.state), group.reason ? make("span", { class: "soft" }, ` ${group.reason}`) : null].filter(Boolean));
  const figures = [[`Found in cache, ${span(view.window)}`, percent(group.hitRate)], [`Found in cache, ${span(view.statusWindow)}`, percent(group.statusHitRate, 0)],
    ["First token, median", seconds(group.ttftP50)],
    ["First token, p99", seconds(group.ttftP99)], ["Requests a second", rate(group.requestsPerSecond)],
    ["In flight", count(group.inFlight)], ["Waiting", count(group.waiting)]];
  show(byId("figures"), figures, () => figures.map(([name, value]) => make("div", null, make("dt", null, name), make("dd", null, value))));
}

const REPLICA_HEADS = ["Slot", "Pod", "Revision", "State", { text: "Keys", kind: "number" }, { text: "Sessions", kind: "number" },
  { text: "KV of sessions", kind: "number" }, { text: "In flight", kind: "number" }, { text: "Backlog", kind: "number" }];

function showReplicas(group) {
  const rows = [], marks = [];
  for (const revision of group.revisions) {
    for (const slot of revision.slots) {
      const why = slot.warm === "warm" || !slot.reason ? slot.state : `${slot.state}: ${slot.message || slot.reason}`;
      rows.push([slot.slot === null ? "–" : String(slot.slot), code(slot.pod || "–"), code(revision.revision), why,
        number(slot.share ? percent(slot.share) : "–"), number(count(slot.sessions)), number(slot.kv === null ? "–" : percent(slot.kv, 0)),
        number(count(slot.inFlight)), number(seconds(slot.wait))]);
      marks.push(`${group.label}/${revision.revision}/${slot.slot}` === page.marked);
    }
  }
  fill(byId("replicas"), "The replicas of the group by revision and slot", REPLICA_HEADS, rows)
    .forEach((row, place) => row.classList.toggle("marked", marks[place]));
  const more = group.revisions.reduce((sum, revision) => sum + revision.moreSlots, 0);
  byId("replicas-more").hidden = !more;
  say(byId("replicas-more"), `${plural(more, "more slot is", "more slots are")} not shown.`);
}

let charts = null;

function showSeries(group, view) {
  charts ??= { hit: chartOf("chart-hit", `Prompt tokens found in cache, ${span(view.window)} each`), first: chartOf("chart-first", "Time to first token"),
    rate: chartOf("chart-rate", "Requests a second") };
  const { series } = group;
  plot(charts.hit, series.at, [{ name: "", values: series.hitRate }], { write: (value) => percent(value, 0), top: 1 });
  plot(charts.first, series.at, [{ name: "p50", values: series.ttftP50 }, { name: "p99", values: series.ttftP99 }], { write: seconds });
  plot(charts.rate, series.at, [{ name: "", values: series.requestsPerSecond }], { write: rate });
  const rows = [];
  const step = Math.max(1, Math.ceil(series.at.length / 15));
  for (let index = series.at.length - 1; index >= 0; index -= step)
    rows.push([clock(series.at[index]), number(percent(series.hitRate[index])), number(seconds(series.ttftP50[index])),
      number(seconds(series.ttftP99[index])), number(rate(series.requestsPerSecond[index])), number(count(series.moved[index]))]);
  fill(byId("series"), "The figures of the group over time, the latest first", ["Time", { text: "Hit rate", kind: "number" },
    { text: "First token p50", kind: "number" }, { text: "p99", kind: "number" }, { text: "Requests/s", kind: "number" },
    { text: "Sessions moved", kind: "number" }], rows);
  const moved = series.moved.reduce((sum, each) => sum + each, 0);
  const since = series.at.length ? ` since ${clock(series.at[0])}` : "";
  say(byId("moves"), !view.routersHeard && !series.at.length ? "Whether sessions move is not known: no router answers" : moved ? `${plural(moved, "session", "sessions")} moved to another slot${since}` : `No session has moved${since || " yet"}`);
}

function showRelease(release) {
  byId("release").hidden = !release;
  if (!release) return;
  const words = { done: "passed", current: "now", ahead: "ahead", failed: "failed" };
  show(byId("steps"), [release.steps, release.phase, release.paused], () => release.steps.length
    ? release.steps.map((step) => make("li", { class: step.state, "aria-current": step.state === "current" ? "step" : null },
      `${step.weight} %${step.pause ? ` for ${step.pause}` : ""}: ${words[step.state]}${step.state === "current" && release.paused ? ", paused" : ""}`))
    : [make("li", null, "without steps: it takes over as its replicas become warm")]);
  const heads = ["Revision", "", { text: "Weight", kind: "number" }, { text: "Requests", kind: "number" }, { text: "Failed", kind: "number" },
    { text: "First token p50", kind: "number" }, { text: "p95", kind: "number" }, { text: "Hits, mean of requests", kind: "number" }];
  fill(byId("release-figures"), `Both revisions since ${clock(release.countedSince)}, when the step was seen`, heads, release.revisions.map((each) => [code(each.revision), each.role,
    number(`${each.weight} %`), number(count(each.requests)), number(percent(each.failed)), number(seconds(each.ttftP50)),
    number(seconds(each.ttftP95)), number(percent(each.hitRate))]));
  const { reason, message } = release.opinion;
  show(byId("opinion"), [release.opinion, release.countedSince], () => [make("strong", null, reason || "No word yet"), message ? `: ${message}. ` : ". ",
    make("span", { class: "soft" }, `The figures above are of all requests since ${clock(release.countedSince)}; the operator compares alike ones.`)]);
}

function showWhy(sizing, view) {
  const box = byId("why");
  if (!sizing) return show(box, null, () => [make("p", { class: "soft" }, "Not known: only the operator's status says this, and no cluster is asked.")]);
  const limits = sizing.most === null ? "" : ` (at least ${sizing.least}, at most ${sizing.most})`;
  show(box, sizing, () => [
    make("p", { class: "verdict" }, `${plural(sizing.replicas, "replica", "replicas")}${limits}`),
    make("p", null, sizing.message ? `${sizing.message}.` : "The operator has given no reason yet.", " ",
      sizing.reason ? make("span", { class: "soft" }, `(${sizing.reason})`) : ""),
  ]);
}

function showSaid(group) {
  const well = group.state === "Ready" ? "Nothing keeps the group from its wanted state." : "The operator has not said why.";
  show(byId("said"), [group.said, group.state], () => group.said === null
    ? [make("li", { class: "soft" }, "Not known: only the operator's status says this, and no cluster is asked.")] : group.said.length
    ? group.said.map((each) => make("li", null, make("strong", null, each.words), each.message ? `: ${each.message} ` : " ", make("span", { class: "soft" }, `(${each.reason})`)))
    : [make("li", { class: "soft" }, well)]);
  byId("events-box").hidden = !group.events.length;
  say(byId("events-summary"), `${plural(group.events.length, "event", "events")}`);
  fill(byId("events"), "Events of the group, the latest first", ["Time", "Reason", { text: "Message", kind: "wide" }], group.events.map((each) =>
    [clock(each.at), each.count > 1 ? `${each.reason} ×${each.count}` : each.reason, each.message]));
}

const UNMATCHED_HEADS = ["Hash", "Model", { text: "Prefix tokens", kind: "number" }, { text: "Requests/s", kind: "number" },
  { text: "Tokens/s", kind: "number" }, { text: "Share", kind: "number" }, { text: "Saves", kind: "number" }, { text: "Sessions", kind: "number" }, { text: "Texts", kind: "number" }, { text: "Note", kind: "wide" }];

function showUnmatched(found, heard) {
  byId("unmatched").hidden = !found.length;
  say(byId("unmatched-lead"), found.length
    ? "The heaviest beginnings of requests that no group declares. Tokens/s is what a group would find in cache instead of computing it; Saves is how many replicas are busy with computing it where no cache has it."
    : heard ? "No router has counted a request that matched no group." : "Not known: no router answers.");
  fill(byId("unmatched"), "Prompts that no group declares, the heaviest first", UNMATCHED_HEADS, found.map((each) => [code(each.hash), each.model,
    number(count(each.tokens)), number(each.requestsPerSecond.toFixed(2)), number(count(each.tokensPerSecond)), number(percent(each.share, 0)),
    number(each.saves === null ? "-" : each.saves.toFixed(2)), number(each.sessions < 1000 ? count(each.sessions) : "over 1,000"), number(each.texts < 1000 ? count(each.texts) : "over 1,000"), each.note]));
}

function showGroup(view) {
  const { group } = view;
  byId("group").hidden = !group;
  if (!group) return;
  showTitle(group, view);
  showRelease(group.release);
  showRings(group);
  showSeries(group, view);
  showReplicas(group);
  showWhy(group.sizing, view);
  showSaid(group);
}
