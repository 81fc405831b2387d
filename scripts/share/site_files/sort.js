// Tables sort by a click or the Enter key on a column's heading; what is no number goes last.
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
      const rank = (row) => Number.parseFloat(text(row).replace(/[●◆■✖▼\s]/g, ""));
      const compare = (one, other) => {
        const [left, right] = [rank(one), rank(other)];
        if (Number.isNaN(left) !== Number.isNaN(right)) return Number.isNaN(left) ? 1 : -1;
        const order = Number.isNaN(left) ? text(one).localeCompare(text(other)) : left - right;
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
