#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <thread>

#include "base/error.h"
#include "tests/support/vocabularies.h"
#include "text/utf8.h"

namespace tandem {
namespace {

using Ids = std::vector<int32_t>;
using test::add_token;

// The message of the Error of kind `code` that `f` throws.
std::string error_of(Code code, const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

void expect_refused(const std::function<void(VocabSource&)>& spoil, const std::string& part,
                    Code code = Code::BadData) {
  VocabSource v = test::tale_vocab();
  v.name = "m.gguf";
  spoil(v);
  const std::string message = error_of(code, [&] { Tokenizer t(std::move(v)); });
  EXPECT_NE(message.find("m.gguf: "), std::string::npos) << message;
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

// The ids another implementation gave these prompts with the same vocabulary.
TEST(Tokenizer, TalePrompts) {
  const Tokenizer t(test::tale_vocab());
  EXPECT_EQ(t.n_vocab(), 1024);
  EXPECT_EQ(t.encode("Once upon a time there was a", true), (Ids{708, 331, 656, 258, 501, 432, 307, 258}));
  EXPECT_EQ(t.encode("The king said to his daughter,", true), (Ids{319, 622, 343, 272, 318, 681, 44}));
  EXPECT_EQ(t.encode("The wolf", true), (Ids{319, 825, 396}));
  EXPECT_EQ(
      t.encode(
          "<|im_start|>user\nWhich animal? Never mind that, father,' said Tom; 'if my mother will only "
          "harness the "
          "horse, I will get into his ear and tell him which way to go.<|im_end|>\n<|im_start|>assistant\n",
          true),
      (Ids{1022, 498, 275, 10,  649, 105, 329, 366, 303, 378, 63,  759,  585, 274,  429, 320, 44,  613, 682,
           343,  833, 305, 59,  413, 354, 394, 690, 390, 664, 264, 290,  980, 259,  826, 44,  324, 390, 623,
           416,  318, 844, 267, 814, 322, 427, 625, 272, 380, 46,  1023, 10,  1022, 606, 792, 404, 10}));
}

// Source: tokenizer.md 8.
TEST(Tokenizer, Qwen3RowsOfTheSpecification) {
  const Tokenizer t(test::qwen3_vocab());
  const std::vector<test::EncodedText> rows = {
      {"Hello, world!", {9707, 11, 1879, 0}},
      {"I'LL don't  stop", {40, 6, 4086, 1513, 944, 220, 2936}},
      {"1234567 + ½²", {16, 17, 18, 19, 20, 21, 22, 488, 220, 26062, 29456}},
      {"a\r\n\r\nb  \n c\t\td", {64, 871, 65, 2303, 272, 197, 2698}},
      {"漢字かな 🚀 naïve", {110007, 18600, 128777, 11162, 248, 222, 94880, 586}},
      {"    return x\n\n\n", {262, 470, 856, 1406}},
      {"हिन्दी भाषा", {93948, 42311, 101, 30484, 99, 43647, 14925, 255, 31411, 115, 23868}},
      {"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
       {151644, 872, 198, 6023, 151645, 198, 151644, 77091, 198, 151667, 271, 151668, 271}},
      {"e\u0301", {963}},  // tokenizer.md 3.5
  };
  for (const auto& row : rows) {
    EXPECT_EQ(t.encode(row.text, true), row.ids) << row.text;
    EXPECT_EQ(t.decode(row.ids, true), t.normalize(row.text, true));
  }
}

TEST(Tokenizer, Qwen3AsAnotherImplementation) {
  const Tokenizer t(test::qwen3_vocab());
  const auto cases = test::qwen3_cases();
  ASSERT_GE(cases.size(), 20u);
  for (const auto& c : cases) {
    EXPECT_EQ(t.encode(c.text, true), c.ids) << c.text;
    EXPECT_EQ(t.decode(c.ids, true), t.normalize(c.text, true)) << c.text;
  }
}

TEST(Tokenizer, NormalizesOnlyWhereTheFamilyDoes) {
  VocabSource v = test::byte_vocab();
  EXPECT_EQ(Tokenizer(v).normalize("e\u0301"), "\u00E9");
  EXPECT_EQ(Tokenizer(v).encode("e\u0301", false), (Ids{0xC3, 0xA9}));
  v.pre = "qwen35";
  EXPECT_EQ(Tokenizer(v).encode("e\u0301", false), (Ids{0xC3, 0xA9}));
  v.pre = "default";
  EXPECT_EQ(Tokenizer(v).normalize("e\u0301"), "e\u0301");
  EXPECT_EQ(Tokenizer(v).encode("e\u0301", false), (Ids{'e', 0xCC, 0x81}));
}

TEST(Tokenizer, BadBytesBecomeReplacementCharacters) {
  const Tokenizer t(test::byte_vocab());
  EXPECT_EQ(t.encode("a\xFF", false), (Ids{'a', 0xEF, 0xBF, 0xBD}));
  EXPECT_EQ(t.normalize("\xE2\x82"), "\uFFFD\uFFFD");
  error_of(Code::Internal, [&] { t.encode_parts(std::vector<TextPart>{{"\xE2\x82", false}}); });
}

TEST(Tokenizer, ControlTokensOnlyWhereAsked) {
  const Tokenizer t(test::tale_vocab());
  EXPECT_EQ(t.encode("a<|im_end|>", true), (Ids{'a', 1023}));
  const Ids plain = t.encode("a<|im_end|>", false);
  EXPECT_GT(plain.size(), 3u);
  for (const int32_t id : plain) EXPECT_EQ(t.token_type(id), TokenType::Normal);
  EXPECT_EQ(t.decode(plain), "a<|im_end|>");

  const Tokenizer q(test::qwen3_vocab());  // user-defined tokens are found in any text
  EXPECT_EQ(q.encode("<think>", false), (Ids{151667}));
  EXPECT_EQ(q.encode("a<think>\u0338", true), q.encode("a<think>\u0338", false));
  EXPECT_EQ(q.normalize("<think>\u0338"),
            "<think>\u0338");  // the mark does not compose with the token's last byte
  EXPECT_EQ(q.find_control("x<think><|im_end|>"), 151645);
  EXPECT_EQ(q.find_control("x<think><|im_end"), std::nullopt);
}

TEST(Tokenizer, LongestSpecialTokenAtAPlace) {
  VocabSource v = test::byte_vocab();
  const int32_t ab = add_token(v, "<ab>", TokenType::Control);
  const int32_t abc = add_token(v, "<ab><c>", TokenType::UserDefined);
  const int32_t unk = add_token(v, "<unk>", TokenType::Unknown);
  const Tokenizer t(v);
  EXPECT_EQ(t.encode("<ab><c>x<ab><<ab>", true), (Ids{abc, 'x', ab, '<', ab}));
  EXPECT_EQ(t.encode("<ab><c>", false), (Ids{abc}));
  EXPECT_EQ(t.encode("<unk>", true), (Ids{unk}));
  EXPECT_EQ(t.encode("<unk>", false), (Ids{'<', 'u', 'n', 'k', '>'}));
}

TEST(Tokenizer, SpansTileTheParts) {
  const Tokenizer t(test::tale_vocab());
  const std::vector<TextPart> parts = {{"<|im_start|>user\n", true},
                                       {"The wolf <|im_end|>", false},
                                       {"", false},
                                       {"<|im_end|>", true},
                                       {"\n", true}};
  const auto spans = t.encode_parts(parts);
  std::string text;
  for (const auto& p : parts) text += p.text;
  uint32_t at = 0;
  for (const TokenSpan& s : spans) {
    EXPECT_EQ(s.begin, at);
    EXPECT_EQ(text.substr(s.begin, s.end - s.begin), t.token_bytes(s.id));
    at = s.end;
  }
  EXPECT_EQ(at, text.size());
  EXPECT_EQ(spans.front(), (TokenSpan{1022, 0, 12}));
  EXPECT_EQ(std::count_if(spans.begin(), spans.end(), [](auto& s) { return s.id == 1023; }), 1);
}

TEST(Tokenizer, PartsAreOneText) {
  const Tokenizer t(test::tale_vocab());
  const auto ids = [&](std::vector<TextPart> parts) {
    Ids out;
    for (const auto& s : t.encode_parts(parts)) out.push_back(s.id);
    return out;
  };
  EXPECT_EQ(ids({{"The w", false}, {"olf", false}}), (Ids{319, 825, 396}));  // " wo" crosses the border
  EXPECT_EQ(ids({{"<|im_", true}, {"end|>", true}}), (Ids{1023}));
  const Ids plain = t.encode("<|im_end|>", false);
  EXPECT_EQ(ids({{"<|im_", false}, {"end|>", true}}), plain);
  EXPECT_EQ(ids({{"<|im_", true}, {"", false}, {"end|>", true}}), (Ids{1023}));
  EXPECT_EQ(ids({{"<|im_", true}, {"e", false}, {"nd|>", true}}), plain);
  const Tokenizer q(test::qwen3_vocab());
  const std::vector<TextPart> cut = {{"<thi", false}, {"nk>", false}};
  EXPECT_EQ(q.encode_parts(cut), (std::vector<TokenSpan>{{151667, 0, 7}}));
  EXPECT_TRUE(t.encode_parts({}).empty());
}

// BPE without a queue: all pairs are looked at for each join.
Ids slow_bpe(const VocabSource& v, const std::string& piece) {
  std::map<std::string, int> rank;
  for (size_t i = 0; i < v.merges.size(); ++i) rank.emplace(v.merges[i], static_cast<int>(i));
  std::vector<std::string> s;
  for (const char c : piece) s.emplace_back(v.tokens[static_cast<unsigned char>(c)]);
  while (true) {
    int best = -1;
    size_t at = 0;
    for (size_t i = 0; i + 1 < s.size(); ++i) {
      const auto found = rank.find(s[i] + " " + s[i + 1]);
      if (found != rank.end() && (best < 0 || found->second < best)) {
        best = found->second;
        at = i;
      }
    }
    if (best < 0) break;
    s[at] += s[at + 1];
    s.erase(s.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const auto& x : s) {
    ids.push_back(static_cast<int32_t>(std::find(v.tokens.begin(), v.tokens.end(), x) - v.tokens.begin()));
  }
  return ids;
}

TEST(Tokenizer, MergesAsWithoutAQueue) {
  std::mt19937 rng(5);
  for (int round = 0; round < 200; ++round) {
    // A random vocabulary over a, b, c: each merge joins two symbols that exist.
    VocabSource v = test::byte_vocab();
    std::vector<std::string> symbols = {"a", "b", "c"};
    while (v.merges.size() < 12) {
      const std::string l = symbols[rng() % symbols.size()], r = symbols[rng() % symbols.size()];
      v.merges.push_back(l + " " + r);  // duplicates among them
      if (std::find(v.tokens.begin(), v.tokens.end(), l + r) == v.tokens.end()) {
        add_token(v, l + r, TokenType::Normal);
        symbols.push_back(l + r);
      }
    }
    std::shuffle(v.merges.begin(), v.merges.end(), rng);
    const Tokenizer t(v);
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (size_t n = 1 + rng() % 30; n > 0; --n) text += static_cast<char>('a' + rng() % 3);
      ASSERT_EQ(t.encode(text, false), slow_bpe(v, text)) << text;
    }
  }
}

TEST(Tokenizer, MergeOrder) {
  VocabSource v = test::byte_vocab();
  const int32_t aa = add_token(v, "aa", TokenType::Normal);
  const int32_t aaa = add_token(v, "aaa", TokenType::Normal);
  v.merges = {"a a"};
  EXPECT_EQ(Tokenizer(v).encode("aaaaa", false), (Ids{aa, aa, 'a'}));  // leftmost first
  v.merges = {"a a", "a aa"};
  EXPECT_EQ(Tokenizer(v).encode("aaa", false), (Ids{aa, 'a'}));
  v.merges = {"a a", "aa a", "a a"};  // of duplicates the first rank counts
  EXPECT_EQ(Tokenizer(v).encode("aaa", false), (Ids{aaa}));
}

TEST(Tokenizer, MergesWithoutATokenGiveBytes) {
  VocabSource v = test::byte_vocab();
  v.merges = {"a b", "ab c"};
  const int32_t abc = add_token(v, "abc", TokenType::Normal);
  EXPECT_EQ(Tokenizer(v).encode("abc ab", false), (Ids{abc, ' ', 'a', 'b'}));  // "ab" is no token, "abc" is
  // A merge must not make a control token out of plain text.
  VocabSource w = test::byte_vocab();
  w.merges = {"a b"};
  const int32_t ab = add_token(w, "ab", TokenType::Control);
  EXPECT_EQ(Tokenizer(w).encode("ab", false), (Ids{'a', 'b'}));
  EXPECT_EQ(Tokenizer(w).encode("ab", true), (Ids{ab}));
}

TEST(Tokenizer, Decode) {
  VocabSource v = test::byte_vocab();
  const int32_t end = add_token(v, "<end>", TokenType::Control);
  const int32_t tool = add_token(v, "<tool é>", TokenType::UserDefined);
  const int32_t unused = add_token(v, "[PAD7]", TokenType::Unused);
  const int32_t undefined = add_token(v, "zz", TokenType::Undefined);
  const int32_t literal = add_token(v, "漢\u0120", TokenType::Normal);  // not all in the byte alphabet
  const Tokenizer t(v);
  EXPECT_EQ(t.decode(Ids{'a', end, tool, unused, undefined, ' '}), "a<tool é> ");
  EXPECT_EQ(t.decode(Ids{'a', end}, true), "a<end>");
  EXPECT_EQ(t.decode(Ids{literal}), "漢 ");
  EXPECT_EQ(t.decode(Ids{0xC3, 0xA9, 0xFF, 0xE2, 0x82}), "é\uFFFD\uFFFD");  // the unfinished tail is one
  EXPECT_EQ(t.token_bytes(0xC3), "\xC3");
  EXPECT_EQ(t.token_bytes(end), "<end>");
  EXPECT_EQ(t.token_text(' '), "\u0120");
  EXPECT_EQ(t.find("\u0120"), ' ');
  EXPECT_EQ(t.find("nothing"), std::nullopt);
  for (const int32_t id : {-1, t.n_vocab()}) {
    EXPECT_NE(error_of(Code::Usage, [&] { t.decode(Ids{id}); }).find("not in the vocabulary of 261"),
              std::string::npos);
    error_of(Code::Usage, [&] { t.token_bytes(id); });
  }
}

TEST(Tokenizer, RefusesBrokenVocabularies) {
  using V = VocabSource&;
  expect_refused([](V v) { v.model = "llama"; }, "tokenizer model 'llama'", Code::Unsupported);
  expect_refused([](V v) { v.pre = "gpt-4o"; }, "pre-tokenizer 'gpt-4o'", Code::Unsupported);
  expect_refused([](V v) { v.tokens.clear(), v.types.clear(); }, "is empty");
  expect_refused([](V v) { v.types.pop_back(); }, "has 1023 entries, the vocabulary 1024 tokens");
  expect_refused([](V v) { v.types[5] = 7; }, "token 5 has type 7");
  expect_refused([](V v) { v.types[5] = -1; }, "token 5 has type -1");
  expect_refused([](V v) { v.tokens[900] = v.tokens[400]; }, "tokens 400 and 900 have the same text");
  expect_refused([](V v) { v.tokens[65] = "unlikely"; }, "no normal token for byte 0x41");
  expect_refused([](V v) { v.types[10] = 3; }, "no normal token for byte 0x0A");
  expect_refused([](V v) { v.merges[3] = "ab"; }, "merge 3 is 'ab'");
  expect_refused([](V v) { v.merges[3] = " ab"; }, "merge 3");
  expect_refused([](V v) { v.merges[3] = "ab "; }, "merge 3");
  expect_refused([](V v) { v.merges[3] = "a b c"; }, "merge 3");
  expect_refused([](V v) { v.tokens[1022] = "\xFF<"; }, "special token 1022");
  expect_refused([](V v) { v.eos = 1024; }, "tokenizer.ggml.eos_token_id is 1024, the vocabulary has 1024");
  expect_refused([](V v) { v.bos = UINT32_MAX; }, "bos_token_id");
  expect_refused([](V v) { v.fim_pad = 9999; }, "fim_pad_token_id");
  expect_refused([](V v) { v.unk = 9999; }, "unknown_token_id");
  expect_refused([](V v) { v.add_bos = true; }, "asks for BOS");
  expect_refused([](V v) { v.add_eos = true, v.eos.reset(); }, "asks for EOS");
}

TEST(Tokenizer, EmptyEntriesGetNames) {
  VocabSource v = test::byte_vocab();
  const int32_t empty = add_token(v, "", TokenType::Control);
  const Tokenizer t(v);
  EXPECT_EQ(t.token_text(empty), "[EMPTY_256]");
  EXPECT_EQ(t.token_bytes(empty), "");
  EXPECT_EQ(t.encode("[EMPTY_256]", true).size(), 11u);
  v.tokens.push_back("[EMPTY_256]");
  v.types.push_back(1);
  error_of(Code::BadData, [&] { Tokenizer two(v); });
}

TEST(Tokenizer, MissingTypesAreNormal) {
  VocabSource v = test::byte_vocab();
  v.types.clear();
  v.tokens.push_back("<|im_end|>");
  const Tokenizer t(v);
  EXPECT_EQ(t.token_type(256), TokenType::Normal);
  EXPECT_EQ(t.encode("<|im_end|>", true).size(), 10u);
}

TEST(Tokenizer, EndOfGeneration) {
  const auto set_of = [](const VocabSource& v) {
    const Tokenizer t(v);
    Ids ids;
    for (int32_t i = 0; i < t.n_vocab(); ++i) {
      if (t.is_end_of_generation(i)) ids.push_back(i);
    }
    return ids;
  };
  EXPECT_EQ(set_of(test::tale_vocab()), (Ids{1021, 1023}));
  EXPECT_EQ(set_of(test::qwen3_vocab()), (Ids{151643, 151645, 151662, 151663, 151664}));

  VocabSource v = test::byte_vocab();
  EXPECT_EQ(set_of(v), Ids{});
  v.eos = 1, v.eot = 2, v.eom = 3, v.fim_pad = 4, v.fim_rep = 5, v.fim_sep = 6;
  v.bos = 7, v.pad = 8, v.fim_mid = 9;
  EXPECT_EQ(set_of(v), (Ids{1, 2, 3, 4, 5, 6}));

  VocabSource h = test::byte_vocab();  // <|end|> ends a message only, where the two others exist
  const int32_t end = add_token(h, "<|end|>", TokenType::Control);
  const int32_t ret = add_token(h, "<|return|>", TokenType::Control);
  EXPECT_EQ(set_of(h), (Ids{end, ret}));
  const int32_t call = add_token(h, "<|call|>", TokenType::Control);
  EXPECT_EQ(set_of(h), (Ids{ret, call}));
}

TEST(Tokenizer, BeginAndEnd) {
  VocabSource v = test::tale_vocab();
  const Tokenizer plain(v);
  EXPECT_FALSE(plain.add_bos());
  EXPECT_FALSE(plain.add_eos());
  EXPECT_EQ(plain.bos(), std::nullopt);
  EXPECT_EQ(plain.eos(), 1021);
  EXPECT_EQ(plain.eot(), 1023);
  EXPECT_EQ(plain.pad(), 1021);
  v.bos = 1022;
  v.add_bos = v.add_eos = true;
  v.chat_template = "{{ messages }}";
  const Tokenizer both(v);
  EXPECT_TRUE(both.add_bos());
  EXPECT_TRUE(both.add_eos());
  EXPECT_EQ(both.bos(), 1022);
  EXPECT_EQ(both.chat_template(), "{{ messages }}");
  EXPECT_EQ(both.encode("a", true), (Ids{'a'}));  // encode() adds neither
}

TEST(Tokenizer, RoundTripOfRandomText) {
  const Tokenizer t(test::tale_vocab());
  std::mt19937 rng(11);
  const std::vector<std::string> units = {"the ",       "king",  " ",      "\n",     "é",     "漢", "🚀",
                                          "<|im_end|>", "<|im_", "1",      "'s",     "\t",    "!",  ".",
                                          "a",          "Ġ",     "\u0301", "\uFFFD", "\u00AD"};
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (size_t n = rng() % 40; n > 0; --n) text += units[rng() % units.size()];
    for (const bool special : {false, true}) {
      const std::string want = t.normalize(text, special);
      const Ids ids = t.encode(text, special);
      EXPECT_EQ(t.decode(ids, true), want);
      Utf8Stream stream;
      std::string streamed;
      for (const int32_t id : ids) streamed += stream.push(t.token_bytes(id));
      EXPECT_EQ(streamed + stream.finish(), want);
    }
  }
}

TEST(Tokenizer, AMegabyteOfOneClass) {
  const Tokenizer t(test::tale_vocab());
  for (const char* unit : {"a", "he", "\u00E9", " ", "<|im_"}) {
    std::string text;
    while (text.size() < size_t{1} << 20) text += unit;
    EXPECT_EQ(t.decode(t.encode(text, true), true), text);
  }
}

TEST(Tokenizer, ManyThreadsGetTheSameIds) {
  const Tokenizer t(test::qwen3_vocab());
  const auto cases = test::qwen3_cases();
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        for (const auto& c : cases) wrong[i] += t.encode(c.text, true) != c.ids ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::vector<int>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace tandem
