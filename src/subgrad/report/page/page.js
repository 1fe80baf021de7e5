"use strict";
const table = document.querySelector("#kinks");
const body = table.tBodies[0];
const rows = Array.from(body.rows);
const counted = document.querySelector("#counted");

function filter(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const content = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => content.includes(word));
    shown += !row.hidden;
  }
  counted.textContent = `${shown} of ${rows.length}`;
}

function sort(header) {
  const place = header.cellIndex;
  const isNumber = header.classList.contains("number");
  const isDown = header.getAttribute("aria-sort") === "descending";
  const isFirst = !header.hasAttribute("aria-sort");
  const down = isFirst ? isNumber : !isDown;
  for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => {
    const cell = row.cells[place];
    return isNumber ? Number(cell.dataset.value) : cell.textContent.toLowerCase();
  };
  rows.sort((one, other) => {
    const a = key(one), b = key(other);
    const order = a < b ? -1 : a > b ? 1 : 0;
    return down ? -order : order;
  });
  body.append(...rows);
}

document.querySelector("#filter").addEventListener("input", (event) => filter(event.target.value));
for (const header of table.tHead.rows[0].cells) {
  header.querySelector("button").addEventListener("click", () => sort(header));
}
filter("");
