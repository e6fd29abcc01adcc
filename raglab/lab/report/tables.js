// Tables sort by a click or Enter on their head: up, down, and back to the order that they came in.
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
  if (rows.length < 2) continue;
  const heads = Array.from(table.tHead.rows[0].cells);
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
