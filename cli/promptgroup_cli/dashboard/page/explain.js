// The box for a request: a router says where it would go, and the drawing marks the slot.

function parsedHeaders(text) {
  const found = {};
  for (const line of text.split("\n")) {
    const [name, ...rest] = line.split(":");
    if (name.trim() && rest.length) found[name.trim().toLowerCase()] = rest.join(":").trim();
  }
  return found;
}

async function explain(event) {
  event.preventDefault();
  const answer = byId("answer"), table = byId("candidates");
  answer.setAttribute("aria-busy", "true");
  try {
    const response = await fetch("explain", {
      method: "POST", headers: { "content-type": "application/json" },
      body: JSON.stringify({ body: byId("body").value, headers: parsedHeaders(byId("headers").value) }),
    });
    const told = (response.headers.get("content-type") || "").startsWith("application/json") ? await response.json() : { error: await response.text() };
    if (told.error) throw new Error(told.error);
    page.marked = told.choice || "";
    answer.replaceChildren(make("dl", { class: "facts" }, ...told.facts.flatMap(([name, text]) =>
      [make("dt", null, name), make("dd", name === "Goes to" || name === "Refused" ? { class: "strong" } : null, text)])));
    table.hidden = !told.rows.length;
    if (told.rows.length) {
      const [heads, ...rows] = told.rows;
      const kinds = heads.map((_, index) => (index === 0 ? "code" : index === 2 ? "" : "number"));
      fill(table, "The replicas that were weighed, the best first", heads.map((head, index) => ({ text: head[0] + head.slice(1).toLowerCase(), kind: kinds[index] })),
        rows.map((row) => heads.map((_, index) => ({ text: row[index] ?? "", kind: kinds[index] }))));
    }
  } catch (error) {
    page.marked = "";
    table.hidden = true;
    answer.replaceChildren(make("p", { class: "wrong" }, `This could not be explained: ${error.message}`));
  } finally {
    answer.removeAttribute("aria-busy");
    if (page.view) showGroup(page.view);
  }
}

function mountExplain() {
  byId("explain").addEventListener("submit", explain);
  byId("body").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("explain").requestSubmit();
  });
}
