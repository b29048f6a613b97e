// Asks for the view again and again, and shows it. A change that matters is told to screen readers, a figure is not.

const LATE = 3, FIRST_RETRY = 1000;
let number_shown = -1, heard = 0, timer = 0, states = new Map();

function chosenByAddress() {
  return location.hash.startsWith("#group=") ? decodeURIComponent(location.hash.slice(7)) : "";
}

function choose(label) {
  history.replaceState(null, "", `#group=${encodeURIComponent(label)}`);
  page.chosen = label;
  page.jumps = true;
  look();
}

// What somebody has chosen comes into sight, unless it is there.
function jump() {
  page.jumps = false;
  if (byId("group").getBoundingClientRect().top > 0.6 * window.innerHeight)
    byId("group").scrollIntoView({ behavior: calm.matches ? "auto" : "smooth", block: "start" });
}

function tell(text) {
  say(byId("news"), text);
}

function announce(view) {
  const turned = view.groups.filter((group) => states.has(group.label) && states.get(group.label) !== group.state);
  if (turned.length) tell(turned.slice(0, 3).map((group) => `${group.label}: ${STATES[group.state]}`).join(". "));
  states = new Map(view.groups.map((group) => [group.label, group.state]));
}

function showFreshness(lost) {
  const age = heard && page.view ? Math.max(0, Math.round((Date.now() - heard) / 1000)) : 0;
  const late = page.view && age > LATE * page.view.interval + 5;
  byId("freshness").firstElementChild.className = `dot${lost ? " lost" : late ? " late" : ""}`;
  const routers = page.view ? `, ${plural(page.view.routers.length, "router", "routers")}` : "";
  say(byId("fresh"), lost ? "The command that serves this page does not answer"
    : page.paused ? `Paused at ${clock(page.view ? page.view.at : "")}`
    : late ? `Nothing new for ${age} s` : page.view ? `Live${routers}` : "Connecting");
}

function showProblems(problems) {
  const box = byId("problems");
  show(box, problems, () => problems.map((text) => make("p", null, text)));
  box.hidden = !problems.length;
}

function render(view) {
  const fresh = view.number !== number_shown;
  if (fresh) heard = Date.now();
  else if (view.group) view.group.moves = [];
  number_shown = view.number;
  page.view = view;
  say(byId("namespace"), view.namespace || (view.clusterAsked ? "all namespaces" : ""));
  if (!page.chosen && view.group) page.chosen = view.group.label; // another one that becomes the worst does not take its place
  const title = view.group ? `${view.group.label} · PromptGroup` : "PromptGroup";
  if (document.title !== title) document.title = title;
  showProblems(view.problems);
  showGroups(view);
  showGroup(view);
  showUnmatched(view.unmatched, view.routersHeard);
  if (page.jumps && view.group && view.group.label === page.chosen) jump();
  announce(view);
}

async function look() {
  clearTimeout(timer);
  let lost = false;
  try {
    const response = await fetch(`view?group=${encodeURIComponent(page.chosen)}`);
    const view = await response.json();
    if (view.error) throw new Error(view.error);
    render(view);
  } catch (error) {
    lost = true;
    if (byId("fresh").textContent.startsWith("Live")) tell("The page is no longer up to date");
  }
  showFreshness(lost);
  if (!page.paused) timer = setTimeout(look, page.view ? Math.max(500, 1000 * page.view.interval) : FIRST_RETRY);
}

function pause() {
  page.paused = !page.paused;
  byId("pause").setAttribute("aria-pressed", String(page.paused));
  if (page.paused) clearTimeout(timer);
  else look();
  showFreshness(false);
}

page.chosen = chosenByAddress();
byId("pause").addEventListener("click", pause);
byId("find").addEventListener("submit", (event) => event.preventDefault());
for (const kind of ["input", "change"]) byId("find").addEventListener(kind, () => { if (page.view) showGroups(page.view); });
window.addEventListener("hashchange", () => { page.chosen = chosenByAddress() || page.chosen; look(); });
window.addEventListener("resize", () => { for (const chart of Object.values(charts || {})) chart.redraw(); });
mountExplain();
look();
