"use strict";
// Sort a table by a column: numbers by data-sort, text by locale; empty cells last.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    button.title = "sort";
    head.append(button);
    button.addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
      const numeric = head.classList.contains("number");
      const rows = [...body.rows].map((row) => [key(row), row]);
      rows.sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === "");
        const order = numeric ? Number(a) - Number(b) : a.localeCompare(b, undefined, { numeric: true });
        return rising ? order : -order;
      });
      body.append(...rows.map(([, row]) => row));
    });
  });
}
// A figure is in the page once; its download link is made from it.
for (const figure of document.querySelectorAll("figure[data-name]")) {
  const link = figure.querySelector("a.vector");
  link.href = figure.querySelector("img").src;
  link.download = figure.dataset.name + ".svg";
  link.hidden = false;
}
