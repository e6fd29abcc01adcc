// Tables sort by a click or Enter on their head: up, down, and back to the order that they came in. A link opens the
// section that it leads to, and all sections are open in print.
"use strict";
const words = new Intl.Collator("en", { numeric: true });

// What a cell says, without the smaller text below it; as a number where it is one, null where it is a dash.
function value(cell) {
  const text = (cell.firstChild ? cell.firstChild.textContent : "").trim();
  if (text === "" || text === "–") return null;
  const number = Number(text.replace(/[\s\u00a0,%]/g, "").replace("−", "-"));
  return Number.isNaN(number) ? text : number;
}

function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return words.compare(String(one), String(other));
}

for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const heads = Array.from(table.tHead.rows[0].cells);
  // On a narrow screen a row is a card, in which each cell names its column.
  for (const row of rows) Array.from(row.cells).forEach((cell, column) => { cell.dataset.head = heads[column].textContent; });
  table.classList.add("cards");
  if (rows.length < 2) continue;
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const now = { ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")] || "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      const sign = now === "descending" ? -1 : 1;
      const sorted = rows.map((row) => [value(row.cells[column]), row]);
      // What is missing stays last, whichever way.
      if (now !== "none") {
        head.setAttribute("aria-sort", now);
        sorted.sort(([one], [other]) => (one === null) - (other === null) || (one === null ? 0 : sign * compare(one, other)));
      }
      body.append(...sorted.map(([, row]) => row));
    });
  });
}

function openLinked() {
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (place) for (let part = place; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
}
addEventListener("hashchange", openLinked);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
openLinked();
