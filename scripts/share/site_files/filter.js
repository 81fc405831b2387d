// Above a table with columns named GPU, stack or batch: a choice for each of them, of the values that its rows have.
const filtered = ["GPU", "stack", "batch"];
for (const table of document.querySelectorAll("article table")) {
  const headings = [...table.querySelectorAll("thead th")].map((heading) => heading.textContent.trim());
  if (!filtered.every((name) => headings.includes(name))) continue;
  const rows = [...table.tBodies[0].rows];
  const text = (row, name) => row.cells[headings.indexOf(name)].textContent.trim();
  const count = Object.assign(document.createElement("output"), { className: "filter-count" });
  const choices = new Map(filtered.map((name) => {
    const choice = document.createElement("select");
    const values = [...new Set(rows.map((row) => text(row, name)))];
    values.sort((one, other) => one - other || one.localeCompare(other));
    choice.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
    return [name, choice];
  }));
  const show = () => {
    for (const row of rows) {
      row.hidden = [...choices].some(([name, choice]) => choice.value && choice.value !== text(row, name));
    }
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  };
  const bar = Object.assign(document.createElement("form"), { className: "filters" });
  for (const [name, choice] of choices) {
    const label = document.createElement("label");
    label.append(`${name} `, choice);
    choice.addEventListener("change", show);
    bar.append(label);
  }
  bar.append(count);
  (table.closest(".md-typeset__scrollwrap") ?? table).before(bar);
  show();
}
