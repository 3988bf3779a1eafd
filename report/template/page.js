// Tables that sort and filter, and large figures, made from packed data when their fold is opened; words of a point, links
// that open what they lead to, and tables and figures to take away. The page reads without any of it.

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// DataTables, unpacked when the first table is opened. Numbers sort as such, those that are missing last.
let library = null;
async function dataTables() {
  const DataTable = new Function(await unpack(PACKED))();
  const missing = (compare) => (a, b) => isNaN(a) - isNaN(b) || compare(a, b) || 0;
  DataTable.type("measured", { order: { asc: missing((a, b) => a - b), desc: missing((a, b) => b - a) } });
  return DataTable;
}

const plain = document.createElement("span");
function words(cell) {
  plain.innerHTML = cell[0];
  return plain.textContent.trim();
}
const size = (cell) => cell[1] ?? parseFloat(words(cell).replaceAll(",", ""));

function element(name, attributes, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value) made.setAttribute(key, value);
  made.append(...content);
  return made;
}

async function openTable(fold) {
  const [data, DataTable] = await Promise.all([unpack(fold.dataset.table).then(JSON.parse), (library ??= dataTables())]);
  const head = element("thead", {}), table = element("table", { class: "sortable" });
  if (data.groups.length) {
    head.append(element("tr", {}, ...data.groups.map(([span, words]) => words
      ? element("th", { colspan: span, scope: "colgroup", class: "group" }, words) : element("td", { colspan: span }))));
  }
  head.append(element("tr", {}, ...data.heads.map(([kind, words]) => element("th", { scope: "col", class: kind }, words))));
  table.append(element("caption", {}, element("span", {}, data.caption)), head);
  const box = element("div", { class: "table", tabindex: "0", role: "region", "aria-label": data.caption }, table);
  fold.append(box);
  const wordy = ([kind]) => /words/.test(kind) && !/size/.test(kind);
  const grid = new DataTable(table, {
    data: data.rows,
    deferRender: true,
    pageLength: 50,
    lengthMenu: [50, 200, { label: "all", value: -1 }],
    order: [],
    autoWidth: false,
    titleRow: table.tHead.rows.length - 1,
    columns: data.heads.map((head, column) => ({
      className: head[0],
      type: wordy(head) ? "string" : "measured",
      render: (_, type, row) => {
        const cell = row[column];
        if (type === "sort" || type === "type") return wordy(head) ? words(cell) : size(cell);
        return type === "filter" ? words(cell) : cell[0];
      },
    })),
    createdRow: (row, _, index) => data.kinds[index] && row.classList.add(data.kinds[index]),
    layout: { topStart: "search", topEnd: "info", bottomStart: "pageLength", bottomEnd: "paging" },
    language: { search: "Search", info: "_TOTAL_ rows", infoEmpty: "no row", infoFiltered: "of _MAX_", zeroRecords: "none",
                lengthMenu: "_MENU_ rows a page" },
  });
  for (const pages of fold.querySelectorAll("nav")) pages.setAttribute("aria-label", `Pages of ${data.caption}`);
  const filters = element("div", { class: "filters" });
  for (const column of data.filters) {
    const values = [...new Set(data.rows.map((row) => words(row[column])))].sort();
    if (values.length < 2 || values.length > 60) continue;
    const choice = element("select", {});
    choice.add(new Option("all", ""));
    for (const value of values) choice.add(new Option(value || "(empty)", value));
    choice.addEventListener("change", () => {
      const test = (text, row, index) => words(data.rows[index][column]) === choice.value;
      grid.column(column).search.fixed("filter", choice.selectedIndex ? test : null).draw();
    });
    filters.append(element("label", {}, `${groupOf(data.groups, column)}${data.heads[column][1]} `, choice));
  }
  if (filters.children.length) box.before(filters);
  fold.dataset.started = "yes";
}

// The words above the columns among which a column stands.
function groupOf(groups, at) {
  for (const [span, words] of groups) {
    if (at < span) return words ? `${words}: ` : "";
    at -= span;
  }
  return "";
}

const folds = "details[data-table], details[data-drawing]";
for (const fold of document.querySelectorAll(folds)) {
  fold.addEventListener("toggle", async () => {
    if (!fold.open || fold.dataset.begun) return;
    fold.dataset.begun = "yes";
    if (fold.dataset.table) return openTable(fold);
    const drawing = fold.querySelector(".drawing");
    drawing.innerHTML = await unpack(fold.dataset.drawing);
    listen(drawing);
    fold.dataset.started = "yes";
  });
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
function listen(drawing) {
  for (const title of drawing.querySelectorAll("svg :is(use, path, rect) > title")) {
    title.parentNode.dataset.tip = title.textContent; // the browser's own tip would show beside ours
    title.remove();
  }
  const marks = [...drawing.querySelectorAll("[data-tip]")];
  if (!marks.length) return;
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
document.querySelectorAll(".drawing").forEach(listen);

// ---- Figures and tables to take away, which the page has in it.
function save(name, text, type) {
  const link = element("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
  document.body.append(link);
  link.click();
  link.remove();
}

// A drawing as it stands, with the colours of the page written out.
for (const link of document.querySelectorAll('a[data-file$=".svg"]')) {
  link.addEventListener("click", async (event) => {
    event.preventDefault();
    const figure = link.closest("figure"), style = getComputedStyle(document.documentElement);
    const packed = figure.querySelector("[data-drawing]:not([data-started])");
    const drawing = packed ? document.createElement("div") : figure.querySelector("svg").cloneNode(true);
    if (packed) drawing.innerHTML = await unpack(packed.dataset.drawing);
    const svg = packed ? drawing.querySelector("svg") : drawing;
    svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    save(link.dataset.file, svg.outerHTML.replace(/var\((--\w+)\)/g, (_, name) => style.getPropertyValue(name).trim()),
         "image/svg+xml");
  });
}
for (const link of document.querySelectorAll("a[data-packed]")) {
  link.addEventListener("click", async (event) => {
    event.preventDefault();
    save(link.dataset.file, await unpack(link.dataset.packed), "text/csv");
  });
}
