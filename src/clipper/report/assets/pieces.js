// The inspector, part 2: the pieces that it shows, whatever a sample is.
const STRIP = 16; // beyond so many labels, what a neighbour could be is written out

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
  const whose = `sample ${edge.sample}, ${edge.what || data.slot} ${edge.image}`;
  const where = byId.has(edge.sample)
    ? el("a", { href: `#${data.key}=${edge.sample}`, "data-sample": edge.sample }, whose) : whose;
  return el("li", { class: `edge ${edge.chosen ? "chosen" : "dropped"}`, "data-edge": edge.name },
    el("div", { class: "head" }, el("b", {}, edge.name), " ", el("span", { class: "outcome" }, outcome)),
    el("div", { class: "body" }, tile(edge.tile, `neighbour: ${whose}`, 56),
      el("div", {}, where, el("br"), `target ${edge.target}`, el("br"), `distance ${edge.distance}`)),
    el("div", { class: "could" }, "could be ", strip(edge)));
}

function strip(edge) {
  const [, start, stop] = edge.kind === undefined ? ["", 0, data.names.length] : data.kinds[edge.kind];
  if (stop - start > STRIP) return el("span", { class: "ranges" }, oneOf(edge.support));
  const labels = data.names.slice(start, stop).map((name, i) => el("span", {
    class: edge.could.has(start + i) ? "can" : "cannot", "data-label": start + i, "aria-hidden": "true",
  }, name));
  const kind = words ? "strip words" : "strip";
  return el("span", { class: kind, role: "img", "aria-label": oneOf(edge.support) }, ...labels);
}
