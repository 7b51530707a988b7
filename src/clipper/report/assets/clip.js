// The inspector, part 3: one clip on the page: its frames, what they could show, and what is left of it.
const HINT = `Point at a frame, or tab to the frames and use the arrow keys: here it says what was struck out and why.`;
const FATES = { kept: "gold kept", lost: "gold lost", absent: "gold not a candidate" };
const detail = el("div", { class: "detail" });
let focused = null; // the frame that was clicked or tabbed to; pointing at another is for a moment

const listed = (labels) => labels.map((label) => data.names[label]).join(", ") || "nothing";

// Of each label of a frame: not possible, left, struck by an edge of this frame, or struck because of other frames.
function state(sample, edges, frame, label) {
  if (!sample.support[frame].includes(label)) return "never";
  if (sample.left[frame].includes(label)) return "left";
  const against = edges.some((edge) => edge.slot === frame && edge.chosen && !edge.could.has(label));
  return against ? "struck" : "follows";
}

function why(sample, edges, frame) {
  const parts = [`Frame ${frame + 1} could show ${listed(sample.support[frame])}.`];
  for (const edge of edges.filter((own) => own.slot === frame && own.chosen)) {
    const gone = sample.support[frame].filter((label) => !edge.could.has(label));
    if (gone.length) {
      parts.push(`${edge.name} strikes out ${listed(gone)}: its neighbour could only show ${oneOf(edge.support)}.`);
    }
  }
  const rest = sample.support[frame].filter((label) => state(sample, edges, frame, label) === "follows");
  if (rest.length) parts.push(`With the other frames, ${listed(rest)} is out, too.`);
  return [...parts, `Left: ${listed(sample.left[frame])}.`].join(" ");
}

function column(sample, edges, frame) {
  const cells = data.names.map((name, label) => {
    const gold = sample.gold !== null && sample.gold[frame] === label;
    return el("span", { class: `cell ${state(sample, edges, frame, label)}${gold ? " gold" : ""}`, "data-label": label });
  });
  const said = `frame ${frame + 1}: ${why(sample, edges, frame)}`;
  return el("li", {}, el("button", {
    type: "button", class: "candidate frame", tabindex: frame ? -1 : 0, "data-frame": frame, "aria-label": said,
  }, tile(sample.tiles[frame], `frame ${frame + 1}`, 32), ...cells));
}

function legend() {
  const kinds = { left: "left", struck: "struck out by its own edge", follows: "out with the other frames" };
  const shown = Object.entries(kinds).map(([kind, name]) => el("span", {}, el("span", { class: `cell ${kind}` }), ` ${name}`));
  if (known) shown.push(el("span", {}, el("span", { class: "cell gold" }), " gold"));
  return el("p", { class: "legend", "aria-hidden": "true" }, ...shown);
}

function show(sample) {
  const { edges } = read({ ...sample, keep: "" });
  const reading = detail.contains(document.activeElement);
  if (reading) document.activeElement.blur();
  const names = data.names.map((name) => el("span", { class: "name" }, name));
  const frames = sample.tiles.map((_, frame) => column(sample, edges, frame));
  const fate = sample.verdict && el("span", { class: `fate ${sample.verdict}` }, FATES[sample.verdict]);
  detail.replaceChildren(
    el("h3", { tabindex: -1 }, `Clip ${sample.id}: ${sample.target}`, fate),
    el("p", { class: "hint" }, `${number(sample.stay)} of ${number(sample.total)} alignments stay.`),
    el("div", { class: "film" }, el("div", { class: "names", "aria-hidden": "true" }, ...names),
      el("ul", { "aria-label": "frames" }, ...frames)),
    legend(), el("p", { class: "why", role: "status" }, HINT), el("ul", { class: "edges near" }));
  for (const button of detail.querySelectorAll(".frame")) listen(button, sample, edges);
  if (reading) detail.querySelector("h3").focus();
}

function listen(button, sample, edges) {
  const frame = Number(button.dataset.frame);
  const on = () => explain(sample, edges, frame);
  button.addEventListener("mouseenter", on);
  button.addEventListener("mouseleave", () => explain(sample, edges, focused));
  button.addEventListener("focus", () => { focused = frame; on(); });
  button.addEventListener("blur", () => { focused = null; });
  button.addEventListener("click", () => button.focus());
}

// What was explained last stays until another frame is pointed at, so that its neighbours can be reached.
function explain(sample, edges, frame) {
  if (frame === null) return;
  for (const lit of detail.querySelectorAll(".frame.lit")) lit.classList.remove("lit");
  detail.querySelector(`[data-frame="${frame}"]`).classList.add("lit");
  detail.querySelector(".why").textContent = why(sample, edges, frame);
  const own = edges.filter((edge) => edge.slot === frame);
  const cards = own.length ? own.map(edgeCard) : [el("li", { class: "hint" }, "no neighbour")];
  detail.querySelector(".near").replaceChildren(...cards);
}
