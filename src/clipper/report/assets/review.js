// Asks one question at a time; a key answers it. The server keeps each answer before it asks the next one.
const token = new URLSearchParams(location.search).get("token") || "";
const $ = (id) => document.getElementById(id);
const link = (place, more = {}) => `${place}?${new URLSearchParams({ ...more, token })}`;
let question = null;
let busy = false;
let timer = null;

// Text always goes in as text, never as markup.
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;
const image = (slot, text) => el("img", { src: link("/picture", { sample: question.sample, slot }), alt: text });

function show(state) {
  $("answered").textContent = state.answered;
  document.body.dataset.answered = state.answered;
  document.body.dataset.running = state.running;
  const known = state.expected !== null; // only if the verdict confirms the labels
  $("expected").textContent = known ? percent(state.expected) : "–";
  $("bar").style.width = known ? percent(state.expected).replace(" ", "") : "0";
  document.body.dataset.expected = known ? state.expected : "";
  const names = { joint: "", ambiguous: "The groups are found; their names are still open.",
    unsettled: "Not settled yet: more answers help.", uninformative: "The embeddings tell little so far: more answers help." };
  $("said").textContent = state.error || (state.running ? "Labelling again with your answers …" : names[state.verdict] || "");
  question = state.question;
  $("question").hidden = question === null;
  if (question) ask();
  else if (state.verdict !== null) $("said").textContent = "There is nothing left to ask. Ctrl-C in the terminal ends the review.";
  clearTimeout(timer);
  if (state.running) timer = setTimeout(refresh, 700);
}

function ask() {
  const name = `slot ${question.slot} of ${question.place}`;
  $("picture").replaceChildren(question.pictures ? image(question.slot, name)
    : el("span", { class: "word" }, question.inputs[question.slot] || name));
  $("place").textContent = name + (question.target ? `, target ${question.target}` : "");
  const slots = [...Array(question.slots).keys()];
  $("others").replaceChildren(...(question.pictures && slots.length > 1 ? slots.map((slot) => {
    const small = image(slot, `slot ${slot}`);
    if (slot === question.slot) small.className = "own";
    return small;
  }) : []));
  $("labels").replaceChildren(...question.labels.map((label) => {
    const button = el("button", { type: "button", "data-label": label.label, title: percent(label.share) }, label.name,
      label.key && label.key !== label.name ? el("small", {}, label.key) : null);
    if (label.share >= 0.1) button.className = "likely";
    button.addEventListener("click", () => send("label", label.label));
    return button;
  }));
  document.body.dataset.question = `${question.sample},${question.slot}`;
}

async function send(action, label = null) {
  if (busy || !question) return;
  busy = true;
  try {
    const body = JSON.stringify({ sample: question.sample, slot: question.slot, action, label });
    const answer = await fetch(link("/answer"), { method: "POST", body });
    const state = await answer.json();
    if (answer.ok) show(state);
    else $("said").textContent = state.error;
  } catch {
    $("said").textContent = "The review has ended: start clipper review again. Your answers are kept.";
  } finally {
    busy = false;
  }
}

async function refresh() {
  try {
    const now = await fetch(link("/state"));
    if (now.ok && !busy) show(await now.json());
    else timer = setTimeout(refresh, 700);
  } catch {
    $("said").textContent = "The review has ended: start clipper review again. Your answers are kept.";
  }
}

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.repeat || !question) return;
  const key = event.key.toLowerCase();
  if (key === "s") send("skip");
  else if (key === "w") send("wrong");
  else {
    const label = question.labels.find((own) => own.key === key);
    if (label) send("label", label.label);
  }
});
$("skip").addEventListener("click", () => send("skip"));
$("wrong").addEventListener("click", () => send("wrong"));
refresh();
