"use strict";
// Filters the cases of the run, and opens what a link points to. Without this script, everything is
// shown.
const filter = document.getElementById("filter");
const rows = [...document.querySelectorAll("#cases tbody tr")];
const texts = rows.map((row) => row.textContent.toLowerCase());
const shown = document.getElementById("shown");

function applyFilter() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  rows.forEach((row, index) => {
    row.hidden = !words.every((word) => texts[index].includes(word));
    count += row.hidden ? 0 : 1;
  });
  shown.textContent = `${count} of ${rows.length}`;
}

// Only one case is shown at a time.
function showTarget() {
  const id = decodeURIComponent(location.hash.slice(1));
  const target = document.getElementById(id);
  const section = target && target.closest("section.case");
  for (const other of document.querySelectorAll("section.case")) {
    other.hidden = other !== section;
  }
  document.getElementById("run").hidden = Boolean(section);
  for (let open = target; open; open = open.parentElement) {
    if (open.tagName === "DETAILS") {
      open.open = true;
    }
  }
  if (target) {
    target.scrollIntoView();
  }
}

document.querySelector("form.filter").addEventListener("submit", (event) => event.preventDefault());
filter.addEventListener("input", applyFilter);
addEventListener("hashchange", showTarget);
addEventListener("keydown", (event) => {
  if (event.key === "/" && !/INPUT|TEXTAREA/.test(event.target.tagName)) {
    event.preventDefault();
    location.hash = "run";
    filter.focus();
  }
});
applyFilter();
if (rows.length === 1 && !location.hash) {
  location.hash = document.querySelector("section.case").id;
} else {
  showTarget();
}
