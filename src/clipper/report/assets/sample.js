// The inspector, part 2: one sample on the page, and what is pointed at.
const STRIP = 16; // beyond so many labels, what a neighbour could be is written out
const HINT = "Point at a candidate, or tab to the list and use the arrow keys: here it says what struck it out. " +
  "The small letters after a candidate name the edges that did." + (known ? " Bold: the gold labels." : "");

const detail = el("div", { class: "detail" });
let focused = null; // the candidate that was clicked or tabbed to; pointing at another is for a moment

// Text always goes in as text, never as markup.
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

function tile(index, label, aim) {
  const [width, height] = data.size;
  const scale = Math.max(1, Math.round(aim / width)); // whole pixels stay sharp
  const share = (place, count) => (count > 1 ? (100 * place) / (count - 1) : 0) + "%";
  const node = el("span", { class: "tile", role: "img", "aria-label": label, "data-tile": index });
  Object.assign(node.style, {
    width: `${width * scale}px`, height: `${height * scale}px`,
    backgroundSize: `${100 * data.columns}% ${100 * data.rows}%`,
    backgroundPosition: `${share(index % data.columns, data.columns)} ` +
      share(Math.floor(index / data.columns), data.rows),
  });
  return node;
}

function edgeCard(edge) {
  const strikes = edge.contradicts ? number(edge.contradicts) : "none";
  const outcome = edge.chosen ? `chosen, strikes ${strikes}` : `dropped, would strike ${strikes}`;
  const whose = `sample ${edge.sample}, ${edge.what} ${edge.image}`;
  const where = byId.has(edge.sample)
    ? el("a", { href: `#${data.key}=${edge.sample}`, "data-sample": edge.sample }, whose) : whose;
  return el("li", { class: `edge ${edge.chosen ? "chosen" : "dropped"}`, "data-edge": edge.name },
    el("div", { class: "head" }, el("b", {}, edge.name), " ", el("span", { class: "outcome" }, outcome)),
    el("div", { class: "body" }, tile(edge.tile, `neighbour: ${whose}`, 56),
      el("div", {}, where, el("br"), `target ${edge.target}`, el("br"), `distance ${edge.distance}`)),
    el("div", { class: "could" }, "could be ", strip(edge)));
}

function strip(edge) {
  const [, start, stop] = data.kinds[edge.kind];
  if (stop - start > STRIP) return el("span", { class: "ranges" }, oneOf(edge.support));
  const labels = data.names.slice(start, stop).map((name, i) => el("span", {
    class: edge.could.has(start + i) ? "can" : "cannot", "data-label": start + i, "aria-hidden": "true",
  }, name));
  const kind = words ? "strip words" : "strip";
  return el("span", { class: kind, role: "img", "aria-label": oneOf(edge.support) }, ...labels);
}

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
