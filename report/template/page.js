// Tables that sort and filter when their fold is opened, words of a point, links that open what they lead to, and
// figures to take away. The page reads without any of it.

const FILTERED = "th.filter";

// DataTables, unpacked when the first fold is opened.
let library = null;
async function unpacked() {
  const bytes = Uint8Array.from(atob(PACKED), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Function(await new Response(stream).text())();
}

const begun = new WeakSet();
async function start(table) {
  if (begun.has(table)) return;
  begun.add(table);
  const DataTable = await (library ??= unpacked());
  const grid = new DataTable(table, {
    paging: false,
    order: [],
    autoWidth: false,
    titleRow: table.tHead.rows.length - 1,
    layout: { topStart: "search", topEnd: "info", bottomStart: null, bottomEnd: null },
    language: { search: "Search", info: "_TOTAL_ rows", infoEmpty: "no row", infoFiltered: "of _MAX_", zeroRecords: "none" },
  });
  const filters = document.createElement("div");
  filters.className = "filters";
  for (const head of table.querySelectorAll(FILTERED)) {
    const column = grid.column(head);
    const values = [...new Set(column.nodes().toArray().map((cell) => cell.textContent.trim()))];
    if (values.length < 2 || values.length > 60) continue;
    const choice = document.createElement("select");
    choice.add(new Option("all", ""));
    for (const value of values.sort()) choice.add(new Option(value || "(empty)", value));
    choice.addEventListener("change", () => {
      const wanted = choice.value;
      const test = (text, row, index) => column.nodes().toArray()[index] === undefined || grid.cell(index, column.index()).node().textContent.trim() === wanted;
      column.search.fixed("filter", choice.selectedIndex ? test : null).draw();
    });
    const label = document.createElement("label");
    const group = table.querySelectorAll("thead tr").length > 1 ? groupOf(head) : "";
    label.append(group + head.textContent.trim() + " ", choice);
    filters.append(label);
  }
  if (filters.children.length) table.closest(".table").before(filters);
  table.dataset.started = "yes";
}

// The words above the columns among which a heading stands.
function groupOf(head) {
  let at = [...head.parentElement.children].indexOf(head);
  for (const group of head.closest("thead").rows[0].cells) {
    if (at < group.colSpan) return group.textContent.trim() ? group.textContent.trim() + ": " : "";
    at -= group.colSpan;
  }
  return "";
}

for (const fold of document.querySelectorAll("details.fold")) {
  fold.addEventListener("toggle", () => fold.open && fold.querySelectorAll("table.sortable").forEach(start));
}

function reveal() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  requestAnimationFrame(() => target.scrollIntoView({ block: target.matches("tr") ? "center" : "start" }));
}
addEventListener("hashchange", reveal);
reveal();

// ---- The words of a point: pointed at, or walked to with the arrow keys of a drawing that has the focus.
const tip = document.createElement("div");
tip.id = "tip";
tip.setAttribute("role", "status");
document.body.append(tip);
for (const title of document.querySelectorAll(".drawing svg :is(use, path, rect) > title")) {
  title.parentNode.dataset.tip = title.textContent; // the browser's own tip would show beside ours
  title.remove();
}
let told = null;
function tell(mark) {
  if (!mark && !told) return;
  told?.classList.remove("told");
  told = mark;
  tip.textContent = mark ? mark.dataset.tip : "";
  tip.hidden = !mark;
  if (!mark) return;
  mark.classList.add("told");
  const box = mark.getBoundingClientRect();
  const left = box.left + box.width / 2 - tip.offsetWidth / 2;
  tip.style.left = Math.max(6, Math.min(left, innerWidth - tip.offsetWidth - 6)) + "px";
  tip.style.top = (box.top > tip.offsetHeight + 12 ? box.top - tip.offsetHeight - 8 : box.bottom + 8) + "px";
}
tip.hidden = true;
document.addEventListener("pointerover", (event) => tell(event.target.closest?.("[data-tip]") ?? null));
document.addEventListener("scroll", () => tell(told), { capture: true, passive: true }); // it stays beside its point
for (const drawing of document.querySelectorAll(".drawing")) {
  const marks = [...drawing.querySelectorAll("[data-tip]")];
  if (!marks.length) continue;
  drawing.setAttribute("aria-description", "Arrow keys tell the values of its points.");
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") tell(null);
    if (!step) return;
    event.preventDefault();
    const at = marks.indexOf(told);
    tell(marks[at < 0 ? (step > 0 ? 0 : marks.length - 1) : (at + step + marks.length) % marks.length]);
  });
  drawing.addEventListener("blur", () => tell(null));
}

// ---- A figure to take away: its SVG as it stands, with the colours of the page written out. The page may have been sent
// to somebody without the folder beside it, to which its links lead.
for (const link of document.querySelectorAll('a[download$=".svg"]')) {
  link.addEventListener("click", () => {
    const drawing = link.closest("figure").querySelector("svg").cloneNode(true);
    const style = getComputedStyle(document.documentElement);
    drawing.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const text = drawing.outerHTML.replace(/var\((--\w+)\)/g, (_, name) => style.getPropertyValue(name).trim());
    link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  });
}
