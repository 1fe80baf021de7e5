"use strict";
const root = document.documentElement;
const controls = document.querySelector("#controls");
const search = document.querySelector("#search");
const buttons = Array.from(controls.querySelectorAll("[data-filter]"));
const theme = document.querySelector("#theme");
const counted = document.querySelector("#counted");
const articles = Array.from(document.querySelectorAll("article"), (article) => ({
  article,
  text: article.textContent.toLowerCase(),
  group: article.closest(".group"),
  folded: article.querySelector(":scope > details"),
  spots: Array.from(article.querySelectorAll(".spot"), (spot) => ({ spot, kinds: spot.dataset.is.split(" "), text: spot.textContent.toLowerCase() })),
}));

// An operation that is named shows all of its places; otherwise those that are spoken of.
function refresh() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const kinds = buttons.filter((each) => each.getAttribute("aria-pressed") === "true").map((each) => each.dataset.filter);
  let places = 0, operations = 0;
  for (const { article, spots, folded } of articles) {
    const head = `${article.querySelector("h3").textContent} ${article.querySelector(".what")?.textContent ?? ""}`.toLowerCase();
    const left = words.filter((word) => !head.includes(word));
    let shown = 0;
    for (const { spot, kinds: has, text } of spots) {
      spot.hidden = !(left.every((word) => text.includes(word)) && kinds.every((kind) => has.includes(kind)));
      shown += !spot.hidden;
    }
    article.hidden = !shown;
    if (folded) {
      folded.hidden = !folded.querySelector(".spot:not([hidden])");
      folded.open = (kinds.length > 0 || left.length > 0) && !folded.hidden;
    }
    places += shown;
    operations += shown > 0;
  }
  for (const group of document.querySelectorAll(".group")) group.hidden = !group.querySelector("article:not([hidden])");
  document.querySelector("#none").hidden = operations > 0;
  const said = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  counted.textContent = `${said(places, "place")} of ${said(operations, "operation")}`;
}

function clear() {
  search.value = "";
  for (const each of buttons) each.setAttribute("aria-pressed", "false");
  refresh();
}

// The choice is kept where the browser lets pages of files keep something.
function kept(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(name);
    localStorage.setItem(name, value);
  } catch { /* it does not */ }
  return null;
}

const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
const told = () => theme.setAttribute("aria-pressed", String(dark()));
theme.addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  kept("subgrad-theme", root.dataset.theme);
  told();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", told);

search.addEventListener("input", refresh);
controls.addEventListener("submit", (event) => event.preventDefault());
for (const each of buttons) {
  each.addEventListener("click", () => {
    each.setAttribute("aria-pressed", String(each.getAttribute("aria-pressed") !== "true"));
    refresh();
  });
}
document.querySelector("#clear").addEventListener("click", () => { clear(); search.focus(); });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape") clear();
});
// A link to an operation that is filtered away shows it.
addEventListener("hashchange", () => {
  if (document.getElementById(location.hash.slice(1))?.hidden) {
    clear();
    document.getElementById(location.hash.slice(1)).scrollIntoView();
  }
});

const stored = kept("subgrad-theme");
if (stored === "light" || stored === "dark") root.dataset.theme = stored;
told();
controls.hidden = false;
refresh();
