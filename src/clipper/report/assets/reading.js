// The inspector, part 1: what the data says of a sample, in values and words. Knows no page but the data's place in it.
const root = document.currentScript.parentElement;
const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
const byId = new Map(data.samples.map((sample) => [sample.id, sample]));
const known = data.samples.some((sample) => sample.verdict !== null);

const number = (value) => value.toLocaleString("en");
const lost = (sample) => sample.total - sample.stay;
const MANY = 9999; // candidates past which a share says more
const stayed = (sample) => (sample.total > MANY ? percent((100 * sample.stay) / sample.total)
  : `${number(sample.stay)} of ${number(sample.total)}`);
const percent = (share) => `${share < 10 ? share.toPrecision(2) : share.toFixed(0)} %`;
const words = data.names.some((name) => name.length > 2); // "cat", not "7" or "12"
const text = (labels) => labels.map((label) => data.names[label]).join(words ? ", " : " ");

// One kind of label: an image. Several: each slot is called by its kind, "name" or "rel".
const several = data.kinds && data.kinds.length > 1;
const noun = (sample, slot) => (several ? data.kinds[sample.kinds[slot]][0] : data.slot);

const LISTED = 12; // words

function oneOf(labels) {
  if (!words) return ranges(labels);
  const more = labels.length - LISTED;
  return text(labels.slice(0, LISTED)) + (more > 0 ? ` and ${number(more)} more` : "");
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

// What became of a sample: its edges get names, its candidates the edges that struck them (Definition 3.2).
function read(sample) {
  const seen = new Map();
  const edges = sample.edges.map((edge) => {
    const nth = seen.get(edge.slot) || 0;
    seen.set(edge.slot, nth + 1);
    return { ...edge, what: noun(sample, edge.slot), kind: sample.kinds && sample.kinds[edge.slot],
      name: `${edge.slot + 1}${letters(nth)}`, could: new Set(edge.support) };
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
    (edge) => `${edge.name}: ${edge.what} ${edge.slot + 1} should not be ${data.names[candidate.labels[edge.slot]]}, ` +
      `its neighbour in sample ${edge.sample} could only be ${oneOf(edge.support)}`
  );
  return `${name} is struck out by ${reasons.join("; by ")}.`;
}
