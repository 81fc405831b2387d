// A cell that is a verdict and nothing else has a colour, and a sign beside its word; prose that begins with such a word has none.
const words = { "●": "holds", "◆": "holds-in-part", "■": "undecided", "✖": "refuted", "▼": "not-tested" };
const verdict = /^(holds in part|holds|undecided|refuted|not tested)(?: \(judged by the variant \w+\))?(?: on \d+ GPUs? \(the article: \d+\))?$/;
for (const cell of document.querySelectorAll("article td")) {
  const word = verdict.exec(cell.textContent.trim());
  if (word) cell.classList.add("verdict", `verdict-${word[1].replaceAll(" ", "-")}`);
}

// A sign has the colour of its verdict wherever it stands; the words beside it keep theirs, and links that of links.
const texts = document.createTreeWalker(document.querySelector("article") ?? document.body, NodeFilter.SHOW_TEXT);
const withSigns = [];
while (texts.nextNode()) if (/[●◆■✖▼]/.test(texts.currentNode.data)) withSigns.push(texts.currentNode);
for (const text of withSigns) {
  const pieces = text.data.split(/([●◆■✖▼])/).filter(Boolean);
  text.replaceWith(...pieces.map((piece) => words[piece] ? Object.assign(document.createElement("span"), { className: `verdict-${words[piece]}`, textContent: piece }) : piece));
}
