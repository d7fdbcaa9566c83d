#include "text/tokenizer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "io/quote.h"
#include "text/utf8.h"

namespace tandem {
namespace {

// Byte -> code point of the byte alphabet.  Source: tokenizer.md 2.
constexpr bool is_printed(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}
constexpr std::array<uint16_t, 256> make_byte_alphabet() {
  std::array<uint16_t, 256> table{};
  uint16_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    table[static_cast<size_t>(b)] = is_printed(b) ? static_cast<uint16_t>(b) : next++;
  }
  return table;
}
constexpr std::array<uint16_t, 256> kByteAlphabet = make_byte_alphabet();
constexpr uint32_t kAlphabetEnd = 0x144;  // one past the last code point of the alphabet

// Code point -> byte, -1 outside the alphabet.
constexpr std::array<int16_t, kAlphabetEnd> make_inverse() {
  std::array<int16_t, kAlphabetEnd> table{};
  for (auto& t : table) t = -1;
  for (int b = 0; b < 256; ++b) table[kByteAlphabet[static_cast<size_t>(b)]] = static_cast<int16_t>(b);
  return table;
}
constexpr std::array<int16_t, kAlphabetEnd> kAlphabetByte = make_inverse();

// The character of a byte; all are below U+0800, so at most two bytes of UTF-8.
std::string alphabet_char(unsigned char byte) {
  const uint16_t c = kByteAlphabet[byte];
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))};
}

// The bytes a text of the byte alphabet stands for; a character outside the alphabet stands for itself.
std::string alphabet_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const int n = utf8_sequence(text);
    const auto length = static_cast<size_t>(n > 0 ? n : 1);
    const auto b0 = static_cast<unsigned char>(text[0]);
    uint32_t c = kAlphabetEnd;
    if (n == 1) c = b0;
    if (n == 2) c = (b0 & 0x1Fu) << 6 | (static_cast<unsigned char>(text[1]) & 0x3Fu);
    const int byte = c < kAlphabetEnd ? kAlphabetByte[c] : -1;
    if (byte >= 0) {
      out.push_back(static_cast<char>(byte));
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return out;
}

constexpr uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Texts that end a generation wherever a vocabulary has them.  Source: tokenizer.md 6.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>",
    "<|eom_id|>", "<EOT>", "_<EOT>", "<|end_of_text|>", "<end_of_utterance>",
    // the FIM tokens of that kind, by the names that the Qwen vocabularies give them
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"};

constexpr bool is_special(TokenType type) {
  return type == TokenType::Control || type == TokenType::Unknown || type == TokenType::UserDefined;
}

// Pieces are indexed with 31 bits, and form C can be three times as long as its text.
constexpr size_t kMaxTextBytes = size_t{512} << 20;

void check_length(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    fail(Code::Usage, "a text of {} bytes is too long to tokenize, at most {}", text.size(), kMaxTextBytes);
  }
}

const VocabSource& check_model(const VocabSource& source) {
  if (source.model != "gpt2") {
    fail(Code::Unsupported, "{}: tokenizer model {} (tokenizer.ggml.model) is not supported; supported: gpt2",
         source.name, quote(source.model));
  }
  return source;
}

}  // namespace

// Memory that one call reuses from piece to piece.
struct Tokenizer::Workspace {
  struct Symbol {
    int32_t symbol;      // -1: joined into its left neighbour
    int32_t prev, next;  // -1: none
    uint32_t begin;      // offset in the piece
  };
  struct Candidate {
    int32_t rank, left;  // left: index of the left symbol
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : left > o.left; }
  };
  std::vector<uint32_t> ends;
  std::vector<Symbol> symbols;
  std::vector<Candidate> queue;  // heap, lowest (rank, left) first
};

Tokenizer::Tokenizer(VocabSource source)
    : name_(source.name), pretokenizer_(check_model(source).pre, source.name) {
  check_sizes(source);
  texts_ = std::move(source.tokens);
  types_.reserve(texts_.size());
  for (size_t i = 0; i < texts_.size(); ++i) {
    types_.push_back(source.types.empty() ? TokenType::Normal : static_cast<TokenType>(source.types[i]));
  }
  index_tokens();
  index_merges(source.merges);
  index_specials();
  index_ids(source);
  chat_template_ = std::move(source.chat_template);
}

void Tokenizer::check_sizes(const VocabSource& source) const {
  const size_t n = source.tokens.size();
  if (n == 0) bad("the vocabulary (tokenizer.ggml.tokens) is empty");
  if (n > INT32_MAX / 4 || source.merges.size() > INT32_MAX / 4) {
    bad(fmt::format("the vocabulary has {} tokens and {} merges, at most {} are possible", n,
                    source.merges.size(), INT32_MAX / 4));
  }
  if (!source.types.empty() && source.types.size() != n) {
    bad(fmt::format("tokenizer.ggml.token_type has {} entries, the vocabulary {} tokens", source.types.size(),
                    n));
  }
  for (size_t i = 0; i < source.types.size(); ++i) {
    if (source.types[i] < 0 || source.types[i] > static_cast<int32_t>(TokenType::Byte)) {
      bad(fmt::format("token {} has type {}, known are 0 to 6 (tokenizer.ggml.token_type)", i,
                      source.types[i]));
    }
  }
}

void Tokenizer::index_tokens() {
  by_text_.reserve(texts_.size());
  bytes_.reserve(texts_.size());
  for (size_t i = 0; i < texts_.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (texts_[i].empty()) {
      // A name for the entry (tokenizer.md 1); it stands for no bytes and is never found in a text.
      texts_[i] = fmt::format("[EMPTY_{}]", id);
      types_[i] = TokenType::Unused;
    }
    const auto [other, fresh] = by_text_.emplace(texts_[i], id);
    if (!fresh) {
      bad(fmt::format("tokens {} and {} have the same text {} (tokenizer.ggml.tokens)", other->second, id,
                      quote(texts_[i])));
    }
    switch (types_[i]) {
      case TokenType::Normal:
      case TokenType::Byte:
        bytes_.push_back(alphabet_bytes(texts_[i]));
        break;
      case TokenType::Unknown:
      case TokenType::Control:
      case TokenType::UserDefined:
        bytes_.push_back(texts_[i]);
        break;
      case TokenType::Undefined:
      case TokenType::Unused:
        bytes_.emplace_back();
        break;
    }
  }
  for (size_t b = 0; b < 256; ++b) {
    const auto found = by_text_.find(alphabet_char(static_cast<unsigned char>(b)));
    if (found == by_text_.end() || types_[static_cast<size_t>(found->second)] != TokenType::Normal) {
      bad(fmt::format("the vocabulary has no normal token for byte 0x{:02X}; text would lose bytes", b));
    }
    byte_symbol_[b] = found->second;
  }
}

void Tokenizer::index_merges(const std::vector<std::string>& merges) {
  std::unordered_map<std::string, int32_t> extra;
  // Only a normal token may come out of plain text, so a text that is also a control token gets a symbol of
  // its own.
  const auto symbol_of = [&](std::string_view text) {
    const auto found = by_text_.find(text);
    if (found != by_text_.end() && types_[static_cast<size_t>(found->second)] == TokenType::Normal) {
      return found->second;
    }
    return extra.try_emplace(std::string(text), n_vocab() + static_cast<int32_t>(extra.size())).first->second;
  };
  merges_.reserve(merges.size());
  rank_.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string_view line = merges[i];
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      bad(fmt::format("merge {} is {}, wanted two pieces with one space between (tokenizer.ggml.merges)", i,
                      quote(line)));
    }
    const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
    std::string joined(left);
    joined += right;
    const Merge merge{symbol_of(left), symbol_of(right), symbol_of(joined)};
    merges_.push_back(merge);
    rank_.emplace(pair_key(merge.left, merge.right),
                  static_cast<int32_t>(i));  // of duplicates the first counts
  }
}

void Tokenizer::index_specials() {
  special_root_.fill(-1);
  const auto child = [&](int32_t node, unsigned char byte) {
    for (const auto& [b, next] : specials_[static_cast<size_t>(node)].children) {
      if (b == byte) return next;
    }
    const auto made = static_cast<int32_t>(specials_.size());
    specials_.emplace_back();
    specials_[static_cast<size_t>(node)].children.emplace_back(byte, made);
    return made;
  };
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (!is_special(types_[i])) continue;
    if (!is_utf8(texts_[i]))
      bad(fmt::format("special token {} has the text {}, wanted UTF-8", i, quote(texts_[i])));
    int32_t& root = special_root_[static_cast<unsigned char>(texts_[i][0])];
    if (root < 0) {
      root = static_cast<int32_t>(specials_.size());
      specials_.emplace_back();
    }
    int32_t node = root;
    for (const char c : std::string_view(texts_[i]).substr(1))
      node = child(node, static_cast<unsigned char>(c));
    specials_[static_cast<size_t>(node)].id = static_cast<int32_t>(i);
  }
}

void Tokenizer::index_ids(const VocabSource& source) {
  const auto id_of = [&](std::optional<uint32_t> id, std::string_view key) -> std::optional<int32_t> {
    if (!id) return std::nullopt;
    if (*id >= texts_.size()) {
      bad(fmt::format("tokenizer.ggml.{}_token_id is {}, the vocabulary has {} tokens", key, *id,
                      texts_.size()));
    }
    return static_cast<int32_t>(*id);
  };
  bos_ = id_of(source.bos, "bos");
  eos_ = id_of(source.eos, "eos");
  eot_ = id_of(source.eot, "eot");
  pad_ = id_of(source.pad, "padding");
  id_of(source.unk, "unknown");
  id_of(source.sep, "seperator");  // so spelled in the format
  id_of(source.mask, "mask");
  id_of(source.fim_pre, "fim_pre");
  id_of(source.fim_suf, "fim_suf");
  id_of(source.fim_mid, "fim_mid");

  ends_generation_.assign(texts_.size(), false);
  const auto ends = [&](std::optional<int32_t> id) {
    if (id) ends_generation_[static_cast<size_t>(*id)] = true;
  };
  ends(eos_);
  ends(eot_);
  ends(id_of(source.eom, "eom"));
  ends(id_of(source.fim_pad, "fim_pad"));
  ends(id_of(source.fim_rep, "fim_rep"));
  ends(id_of(source.fim_sep, "fim_sep"));
  for (const std::string_view text : kEndTexts) ends(find(text));
  if (const auto end = find("<|end|>"); end && find("<|return|>") && find("<|call|>")) {
    ends_generation_[static_cast<size_t>(*end)] = false;  // there it only ends a message
  }

  add_bos_ = source.add_bos.value_or(pretokenizer_.default_add_bos());
  add_eos_ = source.add_eos.value_or(false);
  if (add_bos_ && !bos_) bad("the vocabulary asks for BOS but has no tokenizer.ggml.bos_token_id");
  if (add_eos_ && !eos_) bad("the vocabulary asks for EOS but has no tokenizer.ggml.eos_token_id");
}

std::optional<Tokenizer::Hit> Tokenizer::special_at(std::string_view text, size_t at,
                                                    size_t parsed_end) const {
  std::optional<Hit> best;
  int32_t node = special_root_[static_cast<unsigned char>(text[at])];
  for (size_t i = at + 1; node >= 0; ++i) {
    const SpecialNode& n = specials_[static_cast<size_t>(node)];
    if (n.id >= 0 && (types_[static_cast<size_t>(n.id)] == TokenType::UserDefined || i <= parsed_end)) {
      best = Hit{at, i, n.id};
    }
    if (i == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next =
        std::find_if(n.children.begin(), n.children.end(), [&](auto& c) { return c.first == byte; });
    node = next == n.children.end() ? -1 : next->second;
  }
  return best;
}

// One scan, leftmost first and longest at a place, as the tokenizers do that the models were trained with; it
// differs from "longest text first" only where special texts overlap (tokenizer.md 5).
std::vector<Tokenizer::Hit> Tokenizer::specials(std::string_view text, std::span<const Range> parsed) const {
  std::vector<Hit> hits;
  size_t range = 0;
  for (size_t at = 0; at < text.size();) {
    if (special_root_[static_cast<unsigned char>(text[at])] < 0) {
      ++at;
      continue;
    }
    while (range < parsed.size() && parsed[range].end <= at) ++range;
    const bool inside = range < parsed.size() && parsed[range].begin <= at;
    if (const auto hit = special_at(text, at, inside ? parsed[range].end : 0)) {
      hits.push_back(*hit);
      at = hit->end;
    } else {
      ++at;
    }
  }
  return hits;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_special) const {
  const std::string repaired = repair_utf8(text);
  check_length(repaired);
  const Range whole{0, repaired.size()};
  std::vector<TokenSpan> spans;
  Workspace work;
  const auto plain = [&](size_t begin, size_t end) {
    const std::string_view part = std::string_view(repaired).substr(begin, end - begin);
    encode_plain(pretokenizer_.wants_nfc() ? nfc(part) : std::string(part), 0, work, spans);
  };
  size_t at = 0;
  for (const Hit& hit : specials(repaired, std::span(&whole, parse_special ? 1 : 0))) {
    plain(at, hit.begin);
    spans.push_back({hit.id, 0, 0});
    at = hit.end;
  }
  plain(at, repaired.size());
  std::vector<int32_t> ids;
  ids.reserve(spans.size());
  for (const TokenSpan& s : spans) ids.push_back(s.id);
  return ids;
}

std::vector<TokenSpan> Tokenizer::encode_parts(std::span<const TextPart> parts) const {
  std::string text;
  std::vector<Range> parsed;
  for (const TextPart& part : parts) {
    if (!is_utf8(part.text))
      fail(Code::Internal, "a text part is not UTF-8: it has not been through normalize()");
    if (part.parse_special && !part.text.empty()) {
      if (parsed.empty() || parsed.back().end != text.size()) parsed.push_back({text.size(), text.size()});
      parsed.back().end += part.text.size();
    }
    text += part.text;
  }
  check_length(text);
  std::vector<TokenSpan> out;
  Workspace work;
  size_t at = 0;
  const auto plain = [&](size_t end) {
    encode_plain(std::string_view(text).substr(at, end - at), static_cast<uint32_t>(at), work, out);
  };
  for (const Hit& hit : specials(text, parsed)) {
    plain(hit.begin);
    out.push_back({hit.id, static_cast<uint32_t>(hit.begin), static_cast<uint32_t>(hit.end)});
    at = hit.end;
  }
  plain(text.size());
  return out;
}

std::string Tokenizer::normalize(std::string_view text, bool parse_special) const {
  std::string repaired = repair_utf8(text);
  if (!pretokenizer_.wants_nfc()) return repaired;
  const Range whole{0, repaired.size()};
  const auto between = [&](size_t begin, size_t end) {
    return nfc(std::string_view(repaired).substr(begin, end - begin));
  };
  std::string out;
  size_t at = 0;
  for (const Hit& hit : specials(repaired, std::span(&whole, parse_special ? 1 : 0))) {
    out += between(at, hit.begin);
    out.append(repaired, hit.begin, hit.end - hit.begin);
    at = hit.end;
  }
  return out + between(at, repaired.size());
}

void Tokenizer::encode_plain(std::string_view text, uint32_t offset, Workspace& work,
                             std::vector<TokenSpan>& out) const {
  pretokenizer_.split(text, work.ends);
  uint32_t begin = 0;
  for (const uint32_t end : work.ends) {
    encode_piece(text.substr(begin, end - begin), offset + begin, work, out);
    begin = end;
  }
}

// Joins the adjacent pair of lowest rank, leftmost on ties, until none is left.  An entry of the queue is
// stale when its left symbol no longer is what it was, or no longer has that right neighbour.  Source:
// tokenizer.md 3.4.
void Tokenizer::encode_piece(std::string_view piece, uint32_t offset, Workspace& work,
                             std::vector<TokenSpan>& out) const {
  auto& symbols = work.symbols;
  auto& queue = work.queue;
  const auto n = static_cast<int32_t>(piece.size());
  symbols.clear();
  queue.clear();
  for (int32_t i = 0; i < n; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<size_t>(i)]);
    symbols.push_back({byte_symbol_[byte], i - 1, i + 1 < n ? i + 1 : -1, static_cast<uint32_t>(i)});
  }
  const auto at = [&](int32_t i) -> Workspace::Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto consider = [&](int32_t left) {
    if (left < 0 || at(left).next < 0) return false;
    const auto found = rank_.find(pair_key(at(left).symbol, at(at(left).next).symbol));
    if (found == rank_.end()) return false;
    queue.push_back({found->second, left});
    return true;
  };
  for (int32_t i = 0; i < n; ++i) consider(i);
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const Workspace::Candidate best = queue.back();
    queue.pop_back();
    const Merge& merge = merges_[static_cast<size_t>(best.rank)];
    Workspace::Symbol& left = at(best.left);
    if (left.symbol != merge.left || left.next < 0 || at(left.next).symbol != merge.right) continue;
    Workspace::Symbol& right = at(left.next);
    left.symbol = merge.result;
    right.symbol = -1;
    left.next = right.next;
    if (left.next >= 0) at(left.next).prev = best.left;
    if (consider(best.left)) std::push_heap(queue.begin(), queue.end(), std::greater<>());
    if (consider(left.prev)) std::push_heap(queue.begin(), queue.end(), std::greater<>());
  }
  for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = at(i).next) {
    const uint32_t begin = offset + at(i).begin;
    const uint32_t end = offset + (at(i).next >= 0 ? at(at(i).next).begin : static_cast<uint32_t>(n));
    if (at(i).symbol < n_vocab()) {
      out.push_back({at(i).symbol, begin, end});
      continue;
    }
    // A text without a token (or with a control token of that text): its single bytes.
    for (uint32_t b = begin; b < end; ++b) {
      out.push_back({byte_symbol_[static_cast<unsigned char>(piece[b - offset])], b, b + 1});
    }
  }
}

void Tokenizer::bad(const std::string& message) const { fail(Code::BadData, "{}: {}", name_, message); }

size_t Tokenizer::checked(int32_t id) const {
  if (id < 0 || id >= n_vocab())
    fail(Code::Usage, "token id {} is not in the vocabulary of {} tokens", id, n_vocab());
  return static_cast<size_t>(id);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool show_control) const {
  std::string bytes;
  for (const int32_t id : ids) {
    const TokenType type = types_[checked(id)];
    if (!show_control && (type == TokenType::Control || type == TokenType::Unknown)) continue;
    bytes += bytes_[static_cast<size_t>(id)];
  }
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text + stream.finish();
}

std::string_view Tokenizer::token_bytes(int32_t id) const { return bytes_[checked(id)]; }
std::string_view Tokenizer::token_text(int32_t id) const { return texts_[checked(id)]; }
TokenType Tokenizer::token_type(int32_t id) const { return types_[checked(id)]; }

std::optional<int32_t> Tokenizer::find(std::string_view text) const {
  const auto found = by_text_.find(text);
  if (found == by_text_.end()) return std::nullopt;
  return found->second;
}

std::optional<int32_t> Tokenizer::find_control(std::string_view text) const {
  const Range whole{0, text.size()};
  for (const Hit& hit : specials(text, std::span(&whole, 1))) {
    if (types_[static_cast<size_t>(hit.id)] != TokenType::UserDefined) return hit.id;
  }
  return std::nullopt;
}

bool Tokenizer::is_end_of_generation(int32_t id) const { return ends_generation_[checked(id)]; }

}  // namespace tandem
