// The pruning inspector. Reads the JSON block beside it; knows nothing of any network or library.
(() => {
  "use strict";
  const root = document.currentScript.parentElement;
  const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  const byId = new Map(data.samples.map((sample) => [sample.id, sample]));
  const STRIP = 16; // beyond so many labels, what a neighbour could be is written as ranges
  let order = [...byId.keys()];
  let current = null;

  // Text always goes in as text, never as markup.
  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  const number = (value) => value.toLocaleString("en");
  const lost = (sample) => sample.total - sample.stay;
  const text = (labels) => labels.map((label) => data.names[label]).join(" ");

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

  // What became of a sample: its edges get names, its candidates the edges that struck them (Definition 3.2).
  function read(sample) {
    const seen = new Map();
    const edges = sample.edges.map((edge) => {
      const nth = seen.get(edge.slot) || 0;
      seen.set(edge.slot, nth + 1);
      return { ...edge, name: `${edge.slot + 1}${letters(nth)}`, could: new Set(edge.support) };
    });
    const slots = sample.tiles.length;
    const candidates = [...sample.keep].map((bit, i) => {
      const labels = sample.labels.slice(i * slots, (i + 1) * slots);
      const kept = bit === "1";
      const against = edges.filter((edge) => !edge.could.has(labels[edge.slot]));
      const gold = sample.gold !== null && labels.every((label, slot) => label === sample.gold[slot]);
      return { labels, kept, gold, struckBy: kept ? [] : against.filter((edge) => edge.chosen) };
    });
    return { edges, candidates };
  }

  function letters(n) {
    return (n >= 26 ? letters(Math.floor(n / 26) - 1) : "") + String.fromCharCode(97 + (n % 26));
  }

  function why(candidate) {
    const name = text(candidate.labels) + (candidate.gold ? " (gold)" : "");
    if (candidate.kept) return `${name} stays: it contradicts no chosen edge.`;
    if (!candidate.struckBy.length) return `${name} is struck out, but by no edge: it was drawn at random.`;
    const reasons = candidate.struckBy.map(
      (edge) => `${edge.name}: image ${edge.slot + 1} should not be ${data.names[candidate.labels[edge.slot]]}, ` +
        `its neighbour in sample ${edge.sample} could only be ${ranges(edge.support)}`
    );
    return `${name} is struck out by ${reasons.join("; by ")}.`;
  }

  // The parts of a page -----------------------------------------------------------------------------------------

  const list = el("ol", { class: "samples" });
  const filter = el("select", { "aria-label": "which samples" });
  const find = el("input", { type: "number", min: 0, "aria-label": "go to sample number", placeholder: "number" });
  const previous = el("button", { type: "button", class: "previous" }, "← previous");
  const next = el("button", { type: "button", class: "next" }, "next →");
  const place = el("span", { class: "place", role: "status" });
  const detail = el("div", { class: "detail" });
  const known = data.samples.some((sample) => sample.verdict !== null);

  const FILTERS = {
    all: ["all, by number", (ids) => ids],
    lost: ["gold lost", (ids) => ids.filter((id) => byId.get(id).verdict === "lost")],
    struck: ["most struck out first", (ids) => ids.slice().sort(
      (a, b) => lost(byId.get(b)) / byId.get(b).total - lost(byId.get(a)) / byId.get(a).total || a - b)],
  };

  function buildList() {
    list.replaceChildren(...order.map((id) => {
      const sample = byId.get(id);
      const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("span"));
      bar.firstChild.style.width = `${(100 * sample.stay) / sample.total}%`;
      const link = el("a", { href: `#${data.key}=${id}`, "data-sample": id },
        el("span", { class: "number" }, String(id)), bar,
        el("span", { class: "count" }, `${number(sample.stay)} of ${number(sample.total)}`),
        sample.verdict === "lost" ? el("span", { class: "lost" }, "gold lost") : null);
      return el("li", {}, link);
    }));
    if (!order.length) list.append(el("li", { class: "none" }, "no sample is like that"));
  }

  function buildTools() {
    const ids = [...byId.keys()];
    for (const [name, [label, pick]] of Object.entries(FILTERS)) {
      if (name === "lost" && !known) continue;
      const count = name === "struck" ? "" : ` (${pick(ids).length})`;
      filter.append(el("option", { value: name }, label + count));
    }
    const keys = el("span", { class: "hint" }, "or the keys ← →");
    root.append(
      el("div", { class: "tools", role: "toolbar", "aria-label": "pick a sample" }, previous, next, keys, place,
        el("label", {}, "show ", filter), el("label", {}, "go to ", find)),
      el("div", { class: "panes" }, el("nav", { "aria-label": "samples, and how many of their candidates stay" }, list), detail));
    if (data.of > ids.length) {
      root.append(el("p", { class: "hint" }, `Shown are the first ${ids.length} of ${number(data.of)} samples.`));
    }
  }

  function edgeCard(edge) {
    const strikes = edge.contradicts ? number(edge.contradicts) : "nothing";
    const outcome = edge.chosen ? `chosen, strikes out ${strikes}` : `dropped, would strike out ${strikes}`;
    const whose = `sample ${edge.sample}, image ${edge.image}`;
    const where = byId.has(edge.sample)
      ? el("a", { href: `#${data.key}=${edge.sample}`, "data-sample": edge.sample }, whose) : whose;
    return el("li", { class: `edge ${edge.chosen ? "chosen" : "dropped"}`, "data-edge": edge.name },
      el("div", { class: "head" }, el("b", {}, edge.name), " ", el("span", { class: "outcome" }, outcome)),
      el("div", { class: "body" }, tile(edge.tile, `neighbour: ${whose}`, 56),
        el("div", {}, where, el("br"), `target ${edge.target}`, el("br"), `distance ${edge.distance}`)),
      el("div", { class: "could" }, "could be ", strip(edge)));
  }

  function strip(edge) {
    if (data.names.length > STRIP) return el("span", { class: "ranges" }, ranges(edge.support));
    const labels = data.names.map((name, label) => el("span", {
      class: edge.could.has(label) ? "can" : "cannot", "data-label": label, "aria-hidden": "true",
    }, name));
    return el("span", { class: "strip", role: "img", "aria-label": ranges(edge.support) }, ...labels);
  }

  function slotColumn(sample, edges, slot) {
    const own = edges.filter((edge) => edge.slot === slot);
    const cards = own.length ? own.map(edgeCard) : [el("li", { class: "hint" }, "no neighbour")];
    const gold = sample.gold === null ? null : el("b", { class: "gold" }, `gold ${data.names[sample.gold[slot]]}`);
    return el("div", { class: "slot", "data-slot": slot },
      el("div", { class: "own" }, tile(sample.tiles[slot], `image ${slot + 1} of sample ${sample.id}`, 84),
        el("div", {}, `image ${slot + 1}`, el("br"), gold)),
      el("ul", { class: "edges", "aria-label": `neighbours of image ${slot + 1}` }, ...cards));
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

  const HINT = "Point at a candidate, or tab to the list and use the arrow keys: here it says what struck it out. " +
    "The small letters after a candidate name the edges that did.";

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
      group(`${number(sample.stay)} stay`, kept, sample.stay - kept.length),
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

  // What is pointed at ------------------------------------------------------------------------------------------

  let focused = null; // the candidate that was clicked or tabbed to; pointing at another is for a moment

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

  // Going from sample to sample ---------------------------------------------------------------------------------

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
    mark(true);
  }

  function mark(scroll) {
    for (const link of list.querySelectorAll("a")) {
      const here = Number(link.dataset.sample) === current;
      link.toggleAttribute("aria-current", here);
      if (here && scroll) list.scrollTop = link.offsetTop - list.clientHeight / 2; // the page itself stays put
    }
    const at = order.indexOf(current);
    place.textContent = at < 0 ? `sample ${current}, not in this list` : `${at + 1} of ${order.length}`;
    previous.disabled = at === 0 || !order.length;
    next.disabled = at === order.length - 1 || !order.length;
  }

  function step(by) {
    const at = order.indexOf(current);
    const to = at < 0 ? 0 : at + by;
    if (to >= 0 && to < order.length) go(order[to]);
  }

  function walk(event, forward, back) {
    const buttons = [...event.target.closest("ul").querySelectorAll(".candidate")];
    const to = buttons[buttons.indexOf(event.target) + (forward ? 1 : -1)];
    if (!to || !(forward || back)) return;
    event.target.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }

  function onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea")) return;
    const forward = event.key === "ArrowRight" || event.key === "ArrowDown";
    const back = event.key === "ArrowLeft" || event.key === "ArrowUp";
    if (!forward && !back) return;
    if (event.target.matches(".candidate") && root.contains(event.target)) walk(event, forward, back);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") step(forward ? 1 : -1);
    else return;
    event.preventDefault();
  }

  function onFilter() {
    order = FILTERS[filter.value][1]([...byId.keys()]);
    buildList();
    if (order.length && (!order.includes(current) || filter.value === "struck")) go(order[0]);
    mark(true);
  }

  function onFind() {
    const known = find.value !== "" && byId.has(Number(find.value));
    find.setCustomValidity(known || find.value === "" ? "" : `There is no sample ${find.value} on this page.`);
    if (known) go(Number(find.value));
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
})();
