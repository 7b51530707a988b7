// The inspector, part 3: one sample on the page, and what is pointed at.
const HINT = "Point at a candidate, or tab to the list and use the arrow keys: here it says what struck it out. " +
  "The small letters after a candidate name the edges that did." + (known ? " Bold: the gold labels." : "");

const detail = el("div", { class: "detail" });
let focused = null; // the candidate that was clicked or tabbed to; pointing at another is for a moment

function slotColumn(sample, edges, slot) {
  const own = edges.filter((edge) => edge.slot === slot);
  const cards = own.length ? own.map(edgeCard) : [el("li", { class: "hint" }, "no neighbour")];
  const name = `${noun(sample, slot)} ${slot + 1}`;
  const gold = sample.gold === null ? null : el("b", { class: "gold" }, `gold ${data.names[sample.gold[slot]]}`);
  return el("div", { class: "slot", "data-slot": slot },
    el("div", { class: "own" }, tile(sample.tiles[slot], `${name} of sample ${sample.id}`, 84),
      el("div", {}, name, el("br"), gold)),
    el("ul", { class: "edges", "aria-label": `neighbours of ${name}` }, ...cards));
}

function chip(candidate, index) {
  const labels = candidate.labels.map((label, slot) => {
    const wrong = candidate.struckBy.some((edge) => edge.slot === slot);
    return el("span", { class: wrong ? "label wrong" : "label", "data-slot": slot }, data.names[label]);
  });
  const state = candidate.kept ? "kept" : "struck";
  const tags = candidate.struckBy.map((edge) => edge.name).join(" ");
  return el("li", {}, el("button", {
    type: "button", class: `candidate ${state}${candidate.gold ? " gold" : ""}`, tabindex: index ? -1 : 0,
    "data-labels": candidate.labels.join(","), "data-edges": tags, "aria-label": why(candidate),
  }, el("span", { class: "labels" }, ...labels), tags ? el("sup", {}, tags) : null));
}

function group(title, candidates, hidden) {
  const chips = candidates.map(chip);
  candidates.forEach((candidate, i) => listen(chips[i].firstChild, candidate));
  const more = hidden ? el("p", { class: "hint more" }, `and ${number(hidden)} more, not listed`) : null;
  return el("section", {}, el("h4", {}, title), el("ul", { class: "candidates" }, ...chips), more);
}

function fate(sample) {
  if (sample.verdict === null) return null;
  const gold = text(sample.gold);
  const words = { kept: `gold kept: ${gold}`, lost: `gold lost: ${gold}`, absent: `gold not a candidate: ${gold}` };
  return el("span", { class: `fate ${sample.verdict}` }, words[sample.verdict]);
}

function show(sample) {
  const { edges, candidates } = read(sample);
  const kept = candidates.filter((candidate) => candidate.kept);
  const struck = candidates.filter((candidate) => !candidate.kept);
  const reading = detail.contains(document.activeElement);
  if (reading) document.activeElement.blur(); // while what it explains is still there
  detail.replaceChildren(
    el("h3", { tabindex: -1 }, `Sample ${sample.id}: target ${sample.target}`, fate(sample)),
    el("div", { class: "slots" }, ...sample.tiles.map((_, slot) => slotColumn(sample, edges, slot))),
    el("p", { class: "why", role: "status" }, HINT),
    group(`${number(sample.stay)} ${sample.stay === 1 ? "stays" : "stay"}`, kept, sample.stay - kept.length),
    group(`${number(lost(sample))} struck out`, struck, lost(sample) - struck.length));
  for (const card of detail.querySelectorAll(".edge")) {
    const light = (on) => () => showEdge(card.dataset.edge, on);
    card.addEventListener("mouseenter", light(true));
    card.addEventListener("mouseleave", light(false));
    card.addEventListener("focusin", light(true));
    card.addEventListener("focusout", light(false));
  }
  if (reading) detail.querySelector("h3").focus();
}

function listen(button, candidate) {
  button.addEventListener("mouseenter", () => explain(candidate));
  button.addEventListener("mouseleave", () => explain(focused));
  button.addEventListener("focus", () => explain((focused = candidate)));
  button.addEventListener("blur", () => explain((focused = null)));
  button.addEventListener("click", () => button.focus()); // Safari does not focus a clicked button
}

function explain(candidate) {
  for (const lit of detail.querySelectorAll(".slots .lit")) lit.classList.remove("lit");
  for (const edge of candidate ? candidate.struckBy : []) {
    const card = detail.querySelector(`[data-edge="${edge.name}"]`);
    card.classList.add("lit");
    const label = card.querySelector(`[data-label="${candidate.labels[edge.slot]}"]`);
    if (label) label.classList.add("lit");
  }
  detail.querySelector(".why").textContent = candidate ? why(candidate) : HINT;
}

function showEdge(name, on) {
  for (const button of detail.querySelectorAll(".candidate")) {
    button.classList.toggle("lit", on && button.dataset.edges.split(" ").includes(name));
  }
}
