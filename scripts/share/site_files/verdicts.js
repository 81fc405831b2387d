// A verdict in a table has a colour and a sign beside its word; a cell that begins with a sign has its colour.
const words = { "●": "holds", "◆": "holds-in-part", "■": "undecided", "✖": "refuted", "▼": "not-tested" };
for (const cell of document.querySelectorAll("article td")) {
  const text = cell.textContent.trim();
  const word = /^(holds in part|holds|undecided|refuted|not tested)(?= on \d| \(|:|$)/.exec(text);
  if (word) cell.classList.add("verdict", `verdict-${word[1].replaceAll(" ", "-")}`);
  if (words[text[0]]) cell.classList.add(`verdict-${words[text[0]]}`);
}
