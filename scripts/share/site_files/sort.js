// Tables sort by a click or the Enter key on a column's heading; what is no number goes last.

// The number that a cell begins with, behind a sign: "1,600", "2.01 min", "2440 (256)". Dates, versions and commits are words.
const numberOf = (words) => {
  const found = /^[^\w+-]*([+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.-])(?: (h)\b)?/.exec(words);
  return found ? Number(found[1].replaceAll(",", "")) * (found[2] ? 60 : 1) : NaN;  // of times some are in minutes, longer ones in hours
};

for (const table of document.querySelectorAll("article table")) {
  for (const cell of table.querySelectorAll("td")) cell.classList.toggle("measured", / ± /.test(cell.textContent) && cell.textContent.length < 30);
  const body = table.tBodies[0];
  const headings = [...table.querySelectorAll("th")];
  headings.forEach((heading, column) => {
    heading.tabIndex = 0;
    heading.setAttribute("role", "columnheader button");
    const sort = () => {
      const descending = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const text = (row) => row.cells[column].textContent.trim();
      const compare = (one, other) => {
        const [left, right] = [numberOf(text(one)), numberOf(text(other))];
        if (Number.isNaN(left) !== Number.isNaN(right)) return Number.isNaN(left) ? 1 : -1;
        const order = Number.isNaN(left) ? text(one).localeCompare(text(other), undefined, { numeric: true }) : left - right;
        return descending ? -order : order;
      };
      body.append(...[...body.rows].sort(compare));
    };
    heading.addEventListener("click", sort);
    heading.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        sort();
      }
    });
  });
}
