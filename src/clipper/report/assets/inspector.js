// The pruning inspector: pick a sample, see its neighbours, and which edge struck out which label or candidate.
// A sample whose candidates are listed shows each of them; any other shows which labels are left in each slot.
const root = document.currentScript.parentElement;
const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
const byId = new Map(data.samples.map((sample) => [sample.id, sample]));
const known = data.samples.some((sample) => sample.verdict !== null);
const several = data.kinds.length > 1; // then a slot is named after its kind, such as "name" or "rel"
const words = data.names.some((name) => name.length > 2); // "cat", not "7" or "12"
root.classList.toggle("words", words);
const MANY = 9999; // for more candidates, the share that stays is shown instead of the number
const FEW = 16; // the most labels that fit into one strip
const WORDS = 12; // labels that are listed before "and 8 more"

// ---- The data of a sample in words ----------------------------------------------------------------------------------

const number = (value) => value.toLocaleString("en"); // text stays unchanged
const percent = (share) => `${share < 0.1 ? (100 * share).toPrecision(2) : (100 * share).toFixed(0)} %`;
const stayed = (sample) => (sample.total > MANY || typeof sample.total === "string" ? percent(sample.share)
  : `${number(sample.stay)} of ${number(sample.total)}`);
const sureness = (share) => (share >= 0.9995 ? "nearly 100 %" : share < 0.0005 ? "nearly 0" : `${(100 * share).toFixed(1)} %`);
const noun = (sample, slot) => (several ? data.kinds[sample.kinds[slot]][0] : data.slot);
const joined = (labels) => labels.map((label) => data.names[label]).join(words ? ", " : " ");
const capital = (text) => text[0].toUpperCase() + text.slice(1);

function oneOf(labels) {
  if (!labels.length) return "nothing";
  if (!words) return ranges(labels);
  const more = labels.length - WORDS;
  return joined(labels.slice(0, WORDS)) + (more > 0 ? ` and ${number(more)} more` : "");
}

function ranges(labels) {
  const runs = [];
  for (const label of labels) {
    const last = runs[runs.length - 1];
    if (last && label === last[1] + 1) last[1] = label;
    else runs.push([label, label]);
  }
  const name = (label) => data.names[label];
  return runs.map(([a, b]) => (a === b ? name(a) : name(a) + (b > a + 1 ? "…" : ", ") + name(b))).join(", ");
}

const letters = (n) => (n >= 26 ? letters(Math.floor(n / 26) - 1) : "") + String.fromCharCode(97 + (n % 26));

// The edges of a sample with the names that the page gives them: 0a, 0b, 1a, … Slots count from 0, as in tables of labels;
// only the stored `image` of an edge counts from 1.
function edgesOf(sample) {
  const seen = new Map();
  return sample.edges.map((edge) => {
    const nth = seen.get(edge.slot) || 0;
    seen.set(edge.slot, nth + 1);
    return { ...edge, noun: noun(sample, edge.slot), kind: data.kinds[sample.kinds[edge.slot]],
      image: edge.image - 1, name: `${edge.slot}${letters(nth)}`, could: new Set(edge.support) };
  });
}

// The listed candidates, each with the chosen edges that it contradicts (Definition 3.2 of the paper).
function candidatesOf(sample, edges) {
  const slots = sample.tiles.length;
  return [...sample.keep].map((bit, i) => {
    const labels = sample.labels.slice(i * slots, (i + 1) * slots);
    const kept = bit === "1";
    const against = edges.filter((edge) => edge.chosen && !edge.could.has(labels[edge.slot]));
    const gold = sample.gold !== null && labels.every((label, slot) => label === sample.gold[slot]);
    const probability = sample.joint ? sample.joint.probability[i] : null;
    return { labels, kept, gold, probability, struckBy: kept || sample.joint ? [] : against };
  });
}

function whyCandidate(candidate) {
  const name = joined(candidate.labels) + (candidate.gold ? " (gold)" : "");
  if (candidate.probability !== null) {
    const fate = candidate.kept ? "stays" : "is discarded: the others hold nearly all of the probability";
    return `${name} has a probability of ${sureness(candidate.probability)}. It ${fate}.`;
  }
  if (candidate.kept) return `${name} stays: it contradicts no chosen edge.`;
  if (!candidate.struckBy.length) return `${name} is struck out, but not by an edge: it is improbable given the whole pool, ` +
    "or it was discarded at random.";
  const reasons = candidate.struckBy.map(
    (edge) => `${edge.name}: ${edge.noun} ${edge.slot} should not be ${data.names[candidate.labels[edge.slot]]}, ` +
      `its neighbour in sample ${edge.sample} could only be ${oneOf(edge.support)}`
  );
  return `${name} is struck out by ${reasons.join("; by ")}.`;
}

// What became of a label of a slot: never possible, left, struck by an edge of this slot, or ruled out by other slots.
function fateOf(sample, edges, slot, label) {
  if (!sample.support[slot].includes(label)) return "never";
  if (sample.left[slot].includes(label)) return "left";
  return edges.some((edge) => edge.slot === slot && edge.chosen && !edge.could.has(label)) ? "struck" : "follows";
}

function whySlot(sample, edges, slot) {
  const parts = [`${capital(noun(sample, slot))} ${slot} could be ${oneOf(sample.support[slot])}.`];
  for (const edge of edges.filter((own) => own.slot === slot && own.chosen)) {
    const gone = sample.support[slot].filter((label) => !edge.could.has(label));
    if (gone.length) {
      parts.push(`${edge.name} strikes out ${oneOf(gone)}: its neighbour could only be ${oneOf(edge.support)}.`);
    }
  }
  const rest = sample.support[slot].filter((label) => fateOf(sample, edges, slot, label) === "follows");
  if (rest.length) parts.push(`The other ${data.slots} rule out ${oneOf(rest)}.`);
  return [...parts, `Left: ${oneOf(sample.left[slot])}.`].join(" ");
}

// ---- One sample on the page ----------------------------------------------------------------------------------------

const detail = el("div", { class: "detail" });
let focused = null; // shows the explanation of the focused element again, after the mouse has pointed elsewhere

// Text always goes in as text, never as markup.
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
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

// The neighbour at an edge under joint inference: whether its inferred label is that of this slot.
function inferredCard(edge, own) {
  const whose = `sample ${edge.sample}, ${edge.noun} ${edge.image}`;
  const where = byId.has(edge.sample)
    ? el("a", { href: `#${data.key}=${edge.sample}`, "data-sample": edge.sample }, whose) : whose;
  const agrees = edge.label === own;
  return el("li", { class: `edge ${agrees ? "chosen" : "dropped"}`, "data-edge": edge.name },
    el("div", { class: "head" }, el("b", {}, edge.name), " ", el("span", { class: "outcome" },
      agrees ? `agrees: ${data.names[edge.label]}` : `differs: ${data.names[edge.label]}`)),
    el("div", { class: "body" }, tile(edge.tile, `neighbour: ${whose}`, 56),
      el("div", {}, where, el("br"), `target ${edge.target}`, el("br"), `${data.names[edge.label]} with ${sureness(edge.sure)}`)));
}

function edgeCard(edge, sample) {
  if (sample.joint) return inferredCard(edge, sample.joint.labels[edge.slot]);
  const strikes = edge.contradicts ? number(edge.contradicts) : "none";
  const outcome = edge.chosen ? `chosen, strikes ${strikes}` : `dropped, would strike ${strikes}`;
  const whose = `sample ${edge.sample}, ${edge.noun} ${edge.image}`;
  const where = byId.has(edge.sample)
    ? el("a", { href: `#${data.key}=${edge.sample}`, "data-sample": edge.sample }, whose) : whose;
  return el("li", { class: `edge ${edge.chosen ? "chosen" : "dropped"}`, "data-edge": edge.name },
    el("div", { class: "head" }, el("b", {}, edge.name), " ", el("span", { class: "outcome" }, outcome)),
    el("div", { class: "body" }, tile(edge.tile, `neighbour: ${whose}`, 56),
      el("div", {}, where, el("br"), `target ${edge.target}`, el("br"), `distance ${edge.distance}`)),
    el("div", { class: "could" }, "could be ", strip(edge)));
}

function strip(edge) {
  const [, start, stop] = edge.kind;
  if (stop - start > FEW) return el("span", { class: "ranges" }, oneOf(edge.support));
  const labels = data.names.slice(start, stop).map((name, i) => el("span", {
    class: edge.could.has(start + i) ? "can" : "cannot", "data-label": start + i, "aria-hidden": "true",
  }, name));
  return el("span", { class: words ? "strip words" : "strip", role: "img", "aria-label": oneOf(edge.support) }, ...labels);
}

function edgeCards(sample, edges, slot, label) {
  const own = edges.filter((edge) => edge.slot === slot).map((edge) => edgeCard(edge, sample));
  return el("ul", { class: "edges", "aria-label": label }, ...(own.length ? own : [el("li", { class: "hint" }, "no neighbour")]));
}

function verdictOf(sample) {
  if (sample.verdict === null) return null;
  const gold = "keep" in sample ? `: ${joined(sample.gold)}` : "";
  const said = { kept: "gold kept", lost: "gold lost", absent: "gold not a candidate" }[sample.verdict];
  return el("span", { class: `fate ${sample.verdict}` }, said + gold);
}

function show(sample) {
  const edges = edgesOf(sample);
  const reading = detail.contains(document.activeElement);
  if (reading) document.activeElement.blur(); // before its element is removed
  focused = null;
  detail.replaceChildren(
    el("h3", { tabindex: -1 }, `Sample ${sample.id}: target ${sample.target}`, verdictOf(sample)),
    ...("keep" in sample ? listedView(sample, edges) : slotsView(sample, edges)));
  if (reading) detail.querySelector("h3").focus();
}

// Pointing at an element explains it until the mouse leaves. A click or the tab key explains it until it loses the focus.
function explainOn(button, explain) {
  button.addEventListener("mouseenter", explain);
  button.addEventListener("mouseleave", () => (focused || rest)());
  button.addEventListener("focus", () => { focused = explain; explain(); });
  button.addEventListener("blur", () => { focused = null; rest(); });
  button.addEventListener("click", () => button.focus()); // Safari does not focus a clicked button
}

let rest = () => {}; // called when the mouse points at nothing
const say = (text) => { detail.querySelector(".why").textContent = text; };
const unlight = () => detail.querySelectorAll(".lit").forEach((lit) => lit.classList.remove("lit"));

function listedView(sample, edges) {
  const hint = (sample.joint
    ? "Joint inference over all samples. Below the images are their neighbours with the labels that were inferred for them, " +
      "and the sample's candidates with their probabilities."
    : "Point at a candidate, or tab to the list and use the arrow keys: this box then says why it was struck out. " +
    "The small letters after a candidate are the names of the edges that ruled it out.") + (known ? " Bold: the gold labels." : "");
  const candidates = candidatesOf(sample, edges);
  const lost = sample.total - sample.stay;
  const [kept, struck] = [true, false].map((stays) => candidates.filter((candidate) => candidate.kept === stays));
  rest = () => { unlight(); say(hint); };
  if (sample.joint) [kept, struck].forEach((own) => own.sort((a, b) => b.probability - a.probability));
  const verdict = sample.joint ? el("p", { class: "hint verdict" }, `Verdict on all samples: ${sample.joint.verdict}. ` +
    `This target is wrong with a probability of ${sureness(sample.joint.suspicion)}.`) : null;
  return [
    el("div", { class: "slots" }, ...sample.tiles.map((_, slot) => slotColumn(sample, edges, slot))),
    el("p", { class: "why", role: "status" }, hint), ...(verdict ? [verdict] : []),
    group(`${number(sample.stay)} ${sample.stay === 1 ? "stays" : "stay"}`, kept, sample.stay - kept.length),
    group(sample.joint ? `${number(lost)} improbable` : `${number(lost)} struck out`, struck, lost - struck.length),
  ];
}

function slotColumn(sample, edges, slot) {
  const name = `${noun(sample, slot)} ${slot}`;
  const gold = sample.gold === null ? null : el("b", { class: "gold" }, `gold ${data.names[sample.gold[slot]]}`);
  const inferred = sample.joint ? el("div", { class: "inferred" },
    `${data.names[sample.joint.labels[slot]]} with ${sureness(sample.joint.sure[slot])}`) : null;
  const column = el("div", { class: "slot", "data-slot": slot },
    el("div", { class: "own" }, tile(sample.tiles[slot], `${name} of sample ${sample.id}`, 84),
      el("div", {}, name, el("br"), inferred, gold)),
    edgeCards(sample, edges, slot, `neighbours of ${name}`));
  for (const card of column.querySelectorAll(".edge")) {
    for (const [event, on] of [["mouseenter", true], ["focusin", true], ["mouseleave", false], ["focusout", false]]) {
      card.addEventListener(event, () => detail.querySelectorAll(".candidate").forEach((button) =>
        button.classList.toggle("lit", on && button.dataset.edges.split(" ").includes(card.dataset.edge))));
    }
  }
  return column;
}

function group(title, candidates, hidden) {
  const more = hidden > 0 ? el("p", { class: "hint more" }, `and ${number(hidden)} more, not listed`) : null;
  return el("section", {}, el("h4", {}, title), el("ul", { class: "candidates" }, ...candidates.map(chip)), more);
}

function chip(candidate, index) {
  const labels = candidate.labels.map((label, slot) => {
    const wrong = candidate.struckBy.some((edge) => edge.slot === slot);
    return el("span", { class: wrong ? "label wrong" : "label", "data-slot": slot }, data.names[label]);
  });
  const tags = candidate.struckBy.map((edge) => edge.name).join(" ");
  const button = el("button", {
    type: "button", class: `candidate ${candidate.kept ? "kept" : "struck"}${candidate.gold ? " gold" : ""}`,
    tabindex: index ? -1 : 0, "data-labels": candidate.labels.join(","), "data-edges": tags,
    "aria-label": whyCandidate(candidate),
  }, el("span", { class: "labels" }, ...labels), tags ? el("sup", {}, tags) : null,
    candidate.probability >= 0.0005 ? el("small", { class: "share" }, sureness(candidate.probability)) : null);
  explainOn(button, () => {
    unlight();
    for (const edge of candidate.struckBy) {
      const card = detail.querySelector(`[data-edge="${edge.name}"]`);
      card.classList.add("lit");
      card.querySelector(`[data-label="${candidate.labels[edge.slot]}"]`)?.classList.add("lit");
    }
    say(whyCandidate(candidate));
  });
  return el("li", {}, button);
}

function slotsView(sample, edges) {
  const hint = `Point at one of the ${data.slots}, or tab to them and use the arrow keys: this box then says which labels were ` +
    "struck out, and why.";
  const every = data.names.map((_, label) => label);
  const shown = every.length > FEW ? every.filter((label) => sample.support.some((could) => could.includes(label))) : every;
  rest = () => {}; // the last explanation stays, so that the mouse can reach its neighbours
  return [
    el("p", { class: "hint" }, `${number(sample.stay)} of ${number(sample.total)} candidates stay.`),
    el("div", { class: "film" },
      el("div", { class: "names", "aria-hidden": "true" }, ...shown.map((label) => el("span", { class: "name" }, data.names[label]))),
      el("ul", { "aria-label": data.slots }, ...sample.tiles.map((_, slot) => frame(sample, edges, slot, shown)))),
    legend(), el("p", { class: "why", role: "status" }, hint), el("div", { class: "near" }),
  ];
}

function frame(sample, edges, slot, shown) {
  const cells = shown.map((label) => {
    const gold = sample.gold !== null && sample.gold[slot] === label;
    return el("span", { class: `cell ${fateOf(sample, edges, slot, label)}${gold ? " gold" : ""}`, "data-label": label });
  });
  const button = el("button", {
    type: "button", class: "candidate frame", tabindex: slot ? -1 : 0, "data-frame": slot,
    "aria-label": whySlot(sample, edges, slot),
  }, tile(sample.tiles[slot], `${noun(sample, slot)} ${slot}`, 32), ...cells);
  explainOn(button, () => {
    unlight();
    button.classList.add("lit");
    say(whySlot(sample, edges, slot));
    detail.querySelector(".near").replaceChildren(edgeCards(sample, edges, slot, `neighbours of ${noun(sample, slot)} ${slot}`));
  });
  return el("li", {}, button);
}

function legend() {
  const kinds = { left: "left", struck: "struck out by its own edge", follows: `ruled out by the other ${data.slots}` };
  if (known) kinds.gold = "gold";
  const shown = Object.entries(kinds).map(([kind, name]) => el("span", {}, el("span", { class: `cell ${kind}` }), ` ${name}`));
  return el("p", { class: "legend", "aria-hidden": "true" }, ...shown);
}

// ---- Which sample: by list, button, key, number or address ---------------------------------------------------------

const list = el("ol", { class: "samples" });
const filter = el("select", { "aria-label": "which samples" });
const find = el("input", { type: "number", min: 0, "aria-label": "go to sample number", placeholder: "number" });
const previous = el("button", { type: "button", class: "previous" }, "← previous");
const next = el("button", { type: "button", class: "next" }, "next →");
const place = el("span", { class: "place", role: "status" });
let order = [...byId.keys()];
let current = null;

const FILTERS = {
  all: ["all, by number", (ids) => ids],
  lost: ["gold lost", (ids) => ids.filter((id) => byId.get(id).verdict === "lost")],
  struck: ["most struck out first", (ids) => ids.slice().sort((a, b) => byId.get(a).share - byId.get(b).share || a - b)],
};

function buildList() {
  list.replaceChildren(...order.map((id) => {
    const sample = byId.get(id);
    const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("span"));
    bar.firstChild.style.width = `${100 * sample.share}%`;
    return el("li", {}, el("a", { href: `#${data.key}=${id}`, "data-sample": id },
      el("span", { class: "number" }, String(id)), bar, el("span", { class: "count" }, stayed(sample)),
      sample.verdict === "lost" ? el("span", { class: "lost" }, "gold lost") : null));
  }));
  if (!order.length) list.append(el("li", { class: "none" }, "no sample matches"));
}

function buildTools() {
  const ids = [...byId.keys()];
  for (const [name, [label, pick]] of Object.entries(FILTERS)) {
    if (name === "lost" && !known) continue;
    const count = name === "struck" ? "" : ` (${pick(ids).length})`;
    filter.append(el("option", { value: name }, label + count));
  }
  root.append(
    el("div", { class: "tools", role: "toolbar", "aria-label": "pick a sample" }, previous, next,
      el("span", { class: "hint keys" }, "or the keys ← →"), place, el("label", {}, "show ", filter), el("label", {}, "go to ", find)),
    el("div", { class: "panes" },
      el("nav", { "aria-label": "samples, and how many of their candidates stay" }, list), detail));
  if (data.of > ids.length) {
    root.append(el("p", { class: "hint" }, `Shown are the first ${ids.length} of ${number(data.of)} samples.`));
  }
}

const fragment = () => new URLSearchParams(location.hash.slice(1));

function go(id) {
  const wanted = fragment();
  wanted.set(data.key, id);
  location.hash = wanted.toString();
}

function arrive() {
  const asked = fragment().get(data.key);
  const id = asked !== null && byId.has(Number(asked)) ? Number(asked) : order[0];
  if (id === undefined || id === current) return;
  current = id;
  show(byId.get(id));
  mark();
}

function mark() {
  const reading = list.contains(document.activeElement);
  const at = order.indexOf(current);
  for (const [i, link] of list.querySelectorAll("a").entries()) {
    const here = i === at;
    if (here) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    link.tabIndex = i === Math.max(at, 0) ? 0 : -1; // the list is one stop for the tab key
    if (here) list.scrollTop = link.offsetTop - list.clientHeight / 2; // the page itself does not scroll
    if (here && reading) link.focus({ preventScroll: true });
  }
  place.textContent = at < 0 ? `sample ${current}, not in this list` : `${at + 1} of ${order.length}`;
  previous.disabled = at === 0 || !order.length;
  next.disabled = at === order.length - 1 || !order.length;
}

function step(by) {
  const at = order.indexOf(current);
  const to = at < 0 ? 0 : at + by;
  if (to >= 0 && to < order.length) go(order[to]);
}

function walk(button, by) {
  const buttons = [...button.closest("ul").querySelectorAll(".candidate")];
  const to = buttons[buttons.indexOf(button) + by];
  if (!to) return;
  button.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

const ACROSS = { ArrowLeft: -1, ArrowRight: 1 };
const DOWN = { ArrowUp: -1, ArrowDown: 1 };

// Among candidates or slots the arrows go from one to the next; elsewhere they go from sample to sample.
function onKey(event) {
  const at = event.target instanceof Element ? event.target : document.body;
  const mine = (at.closest(".inspector") || document.querySelector(".inspector")) === root;
  if (!mine || event.altKey || event.ctrlKey || event.metaKey || at.matches("input, select")) return;
  const by = ACROSS[event.key] || (at.matches(".candidate, .samples a") ? DOWN[event.key] : undefined);
  if (by === undefined) return;
  event.preventDefault();
  if (at.matches(".candidate")) walk(at, by);
  else step(by);
}

function onFilter() {
  order = FILTERS[filter.value][1]([...byId.keys()]);
  buildList();
  if (order.length && (!order.includes(current) || filter.value === "struck")) go(order[0]);
  mark();
}

function onFind() {
  const there = find.value !== "" && byId.has(Number(find.value));
  find.setCustomValidity(there || find.value === "" ? "" : `There is no sample ${find.value} on this page.`);
  if (there) go(Number(find.value));
  else find.reportValidity();
}

buildTools();
buildList();
previous.addEventListener("click", () => step(-1));
next.addEventListener("click", () => step(1));
filter.addEventListener("change", onFilter);
find.addEventListener("change", onFind);
find.addEventListener("input", () => find.setCustomValidity(""));
root.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-sample]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(Number(link.dataset.sample));
});
document.addEventListener("keydown", onKey);
window.addEventListener("hashchange", arrive);
arrive();
