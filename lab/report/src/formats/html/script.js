"use strict";
// Filters the cases of the run, opens what a link points to, and unpacks compressed sections. A page
// contains the run, one case, or the run and sections of its cases. Without this script, everything
// that is not compressed is shown.
const run = document.getElementById("run");
const filter = document.getElementById("filter");
const sections = [...document.querySelectorAll(".case")];
const title = document.title;

function applyFilter(rows, texts) {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const choices = [...filter.form.querySelectorAll("select")].filter((choice) => choice.value);
  const slowest = 1000 * Number(document.getElementById("slower").value);
  let count = 0;
  rows.forEach((row, index) => {
    const isShown =
      words.every((word) => texts[index].includes(word)) &&
      choices.every((choice) => row.dataset[choice.name] === choice.value) &&
      Number(row.dataset.ms) >= slowest;
    row.hidden = !isShown;
    count += isShown ? 1 : 0;
  });
  document.getElementById("shown").textContent = `${count} of ${rows.length}`;
}

// Returns stored markup: base64 of gzip.
function unpacked(stored) {
  const bytes = Uint8Array.from(atob(stored.textContent), (byte) => byte.charCodeAt(0));
  const gzip = new DecompressionStream("gzip");
  return new Response(new Blob([bytes]).stream().pipeThrough(gzip)).text();
}

// Fills an empty section from its markup, which may have several parts.
async function unpack(section) {
  const parts = document.querySelectorAll(`script[data-section="${CSS.escape(section.id)}"]`);
  if (!parts.length || section.hasChildNodes()) {
    return;
  }
  let markup;
  try {
    markup = (await Promise.all([...parts].map(unpacked))).join("");
  } catch (error) {
    section.textContent = `This browser cannot unpack the case: ${error.message}`;
    return;
  }
  // A second link can have unpacked the section meanwhile.
  if (!section.hasChildNodes()) {
    section.innerHTML = markup;
    addCopyButtons(section);
    addPeriods(section);
  }
}

// Adds a button to each text that a reader may want to copy.
function addCopyButtons(root) {
  for (const text of root.querySelectorAll("pre.copy, pre.command")) {
    // Without the prompt.
    const source = text.querySelector("code") ?? text;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(source);
        button.textContent = "Selected: copy it with the keyboard";
      }
    });
    text.after(button);
  }
}

// Lets the box above a table of flows hide the rows whose columns agree.
function addDifferingFilters() {
  for (const label of document.querySelectorAll(".differing")) {
    label.hidden = false;
    const rows = label.nextElementSibling.querySelectorAll("tbody tr:not(.differs)");
    const box = label.querySelector("input");
    const apply = () => {
      for (const row of rows) {
        row.hidden = box.checked;
      }
    };
    label.addEventListener("change", apply);
    apply();
  }
}

// Lets the buttons of a timeline show only the packets and events of a period.
function addPeriods(root) {
  for (const periods of root.querySelectorAll(".periods")) {
    periods.hidden = false;
    periods.addEventListener("click", ({ target }) => {
      const button = target.closest("button");
      if (!button) {
        return;
      }
      const isSelected = button.getAttribute("aria-pressed") !== "true";
      for (const other of periods.querySelectorAll("button")) {
        other.setAttribute("aria-pressed", String(isSelected && other === button));
      }
      const [from, until] = [Number(button.dataset.from), Number(button.dataset.until)];
      for (const item of periods.closest(".case").querySelectorAll("[data-at]")) {
        const at = Number(item.dataset.at);
        item.hidden = isSelected && (at < from || at > until);
      }
    });
  }
}

// Returns the section that is an element or contains it. The identifiers of elements in a section
// begin with that of the section and a colon, so they need not be unpacked.
function sectionOf(id) {
  const known = document.getElementById(id) ?? document.getElementById(id.split(":", 1)[0]);
  return known?.closest(".case");
}

// Lets the head of the times sort the rows by time, and restore their order.
function addSorting(head, rows) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = head.textContent;
  button.addEventListener("click", () => {
    const next = {descending: "ascending", ascending: "none"};
    const order = next[head.ariaSort] ?? "descending";
    head.ariaSort = order;
    const sign = {descending: -1, ascending: 1, none: 0}[order];
    const time = (row) => sign * Number(row.dataset.ms);
    rows[0]?.parentElement.append(...[...rows].sort((one, other) => time(one) - time(other)));
  });
  head.replaceChildren(button);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Shows the target of the address: the run, or one of its cases.
async function showTarget() {
  const hash = location.hash;
  const id = decoded(hash.slice(1));
  const section = sectionOf(id);
  if (run) {
    for (const other of sections) {
      other.hidden = other !== section;
    }
    run.hidden = Boolean(section);
    document.title = section ? `svclab: ${section.ariaLabel}` : title;
  }
  if (section) {
    await unpack(section);
    if (location.hash !== hash) {
      return;
    }
  }
  const target = document.getElementById(id);
  for (let open = target; open; open = open.parentElement) {
    if (open.tagName === "DETAILS") {
      open.open = true;
    }
    if (open.dataset.at) {
      open.hidden = false;
    }
  }
  target?.scrollIntoView();
}

function focusFilter(event) {
  const isText = /INPUT|TEXTAREA/.test(event.target.tagName);
  if (event.key !== "/" || isText || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  event.preventDefault();
  if (run.hidden) {
    location.hash = "run";
    showTarget();
  }
  filter.focus();
}

if (filter) {
  const rows = [...document.querySelectorAll("#cases tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const apply = () => applyFilter(rows, texts);
  filter.form.addEventListener("submit", (event) => event.preventDefault());
  filter.form.addEventListener("input", apply);
  addEventListener("keydown", focusFilter);
  addSorting(document.getElementById("time"), rows);
  apply();
}
addCopyButtons(document);
addPeriods(document);
addDifferingFilters();
addEventListener("hashchange", showTarget);
if (run && sections.length === 1 && !location.hash) {
  // The table of one case is only an entry of the history if a link points to it.
  location.replace(`#${sections[0].id}`);
}
showTarget();
