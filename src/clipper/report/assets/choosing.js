// The inspector, part 4: which sample, by list, button, key, number or address.
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
      el("span", { class: "count" }, stayed(sample)),
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
    if (here) list.scrollTop = link.offsetTop - list.clientHeight / 2; // the page itself stays put
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

// Among candidates the arrows go from one to the next; elsewhere they go from sample to sample.
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
