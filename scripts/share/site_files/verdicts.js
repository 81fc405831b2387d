// A cell that is a verdict and nothing else has a colour, and a sign beside its word; prose that begins with such a word has none.
const words = { "●": "holds", "◆": "holds-in-part", "■": "undecided", "✖": "refuted", "▼": "not-tested" };
const verdict = /^(holds in part|holds|undecided|refuted|not tested)(?: \(judged by the variant \w+\))?(?: on \d+ GPUs? \(the article: \d+\))?$/;
for (const cell of document.querySelectorAll("article td")) {
  const word = verdict.exec(cell.textContent.trim());
  if (word) cell.classList.add("verdict", `verdict-${word[1].replaceAll(" ", "-")}`);
  if (words[cell.textContent.trim()[0]]) cell.classList.add(`verdict-${words[cell.textContent.trim()[0]]}`);
}
