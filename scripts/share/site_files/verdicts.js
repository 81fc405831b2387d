// A verdict in a table has a colour and a sign beside its word.
for (const cell of document.querySelectorAll("article td")) {
  const word = /^(holds in part|holds|undecided|refuted|not tested)(?= on \d| \(|$)/.exec(cell.textContent.trim());
  if (word) cell.classList.add("verdict", `verdict-${word[1].replaceAll(" ", "-")}`);
}
