// Small helpers of every view: building elements, printing numbers, and making tokens readable.
// Text from the record only ever reaches the page as text nodes, never as markup.

function element(tag, properties = {}, ...children) {
  const { data, aria, ...rest } = properties,
    node = Object.assign(document.createElement(tag), rest);
  Object.assign(node.dataset, data);
  for (const [name, value] of Object.entries(aria ?? {})) node.setAttribute(`aria-${name}`, value);
  node.append(...children);
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text =
    size < 10 ** -digits
      ? value.toExponential(1)
      : size >= 1000
        ? Math.round(value).toLocaleString("en").replaceAll(",", "\u202f")
        : size >= 100
          ? value.toFixed(1)
          : size >= 10
            ? value.toFixed(2)
            : value.toFixed(digits);
  return text.replace("-", "−");
}

// A weight with as many digits as it is known to.
function significant(weight, digits) {
  if (!weight) return "0";
  const text = weight < 1e-4 ? weight.toExponential(digits - 1) : weight.toPrecision(digits);
  return text.replace("-", "−");
}

const whole = (value) => value.toLocaleString("en").replaceAll(",", "\u202f");
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

// Marks that tokenizers write for white space, and characters that would not be seen.
const SPACE_MARKS = { Ġ: " ", "▁": " ", Ċ: "\n", ĉ: "\t" };
const SEEN = { " ": "·", "\n": "↵", "\t": "→", "\r": "␍", "\u00a0": "⍽" };

function seen(character) {
  const code = character.codePointAt(0);
  if (character in SEEN) return SEEN[character];
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Zs}]/u.test(character)
    ? `⟨${code.toString(16).toUpperCase()}⟩`
    : character;
}

// What is shown of the tokens of one text, white space and unseen characters drawn.
function readable(tokens) {
  const marked = tokens.some((token) => /^[Ġ▁]/.test(token));
  return tokens.map((token) => {
    const plain = marked ? token.replace(/[Ġ▁Ċĉ]/g, (mark) => SPACE_MARKS[mark]) : token;
    return Array.from(plain, seen).join("") || "∅";
  });
}

const shorten = (text, length) =>
  Array.from(text).length > length
    ? `${Array.from(text)
        .slice(0, length - 1)
        .join("")}…`
    : text;

// A token with its white space set apart, so that the words stand out, and a line break after each ↵ but the last.
function tokenParts(text) {
  return text
    .split(/(↵|[·→␍⍽]+)/)
    .filter(Boolean)
    .flatMap((part, i, parts) => {
      if (!/^[·↵→␍⍽]/.test(part)) return [part];
      return [element("i", {}, part), ...(part === "↵" && i < parts.length - 1 ? [element("br")] : [])];
    });
}
