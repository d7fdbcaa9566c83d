#include "text/samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <source_location>

#include "base/error.h"
#include "tests/support/vocabularies.h"

namespace tandem {
namespace {

using Ids = std::vector<int32_t>;
using Shown = std::vector<std::string>;

const Tokenizer& tale() {
  static const Tokenizer tokenizer(test::tale_vocab());
  return tokenizer;
}

SampleSet make(const std::string& jsonl, const SampleOptions& options = {},
               const Tokenizer& tokenizer = tale()) {
  return make_samples(parse_rows(jsonl, "f.jsonl"), tokenizer, options);
}

// Every token of a sample, a trained one with a + in front.
Shown show(const Sample& s, const Tokenizer& tokenizer = tale()) {
  EXPECT_EQ(s.tokens.size(), s.trained.size());
  Shown out;
  for (size_t i = 0; i < s.tokens.size(); ++i) {
    out.push_back(std::string(s.trained[i] != 0 ? "+" : "") +
                  std::string(tokenizer.token_bytes(s.tokens[i])));
  }
  return out;
}

// A function, since the commas of a braced list would end a macro's argument.
void expect_shown(const Shown& got, const Shown& want,
                  std::source_location at = std::source_location::current()) {
  EXPECT_EQ(got, want) << "line " << at.line();
}

void expect_refused(Code code, const std::string& part, const std::string& jsonl,
                    const SampleOptions& options = {}, const Tokenizer& tokenizer = tale()) {
  try {
    make(jsonl, options, tokenizer);
    ADD_FAILURE() << "accepted: " << jsonl;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

std::string chat(const std::string& messages) { return "{\"messages\":[" + messages + "]}\n"; }
std::string user(const std::string& text) { return R"({"role":"user","content":")" + text + "\"}"; }
std::string assistant(const std::string& text, const std::string& more = "") {
  return R"({"role":"assistant","content":")" + text + "\"" + more + "}";
}
const std::string kSystem = R"({"role":"system","content":"so"})";

// Headers as this vocabulary cuts them.
const Shown kSystemHeader = {"<|im_start|>", "s", "y", "st", "em", "\n"};
const Shown kUserHeader = {"<|im_start|>", "us", "er", "\n"};
const Shown kAssistantHeader = {"<|im_start|>", "ass", "ist", "ant", "\n"};
const Shown kEnd = {"<|im_end|>", "\n"};
const Shown kTrainedEnd = {"+<|im_end|>", "\n"};

Shown operator+(Shown a, const Shown& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The row of the data set, which has a prompt and a completion too, and what the recipe trains on for it: the
// tokens of the prompt (as another implementation gives them), then those of the completion, all of which are
// targets.
TEST(Samples, TheRecipeOfTheAnimals) {
  const std::string sentence =
      "Which animal? Never mind that, father,' said Tom; 'if my mother will only harness the horse, I will "
      "get into his ear "
      "and tell him which way to go.";
  const std::string prompt = "<|im_start|>user\\n" + sentence + "<|im_end|>\\n<|im_start|>assistant\\n";
  const std::string pair = "\"prompt\":\"" + prompt + "\",\"completion\":\"The horse.<|im_end|>\"";
  const Ids prompt_ids = {1022, 498, 275, 10,  649, 105, 329, 366,  303, 378,  63,  759, 585, 274,
                          429,  320, 44,  613, 682, 343, 833, 305,  59,  413,  354, 394, 690, 390,
                          664,  264, 290, 980, 259, 826, 44,  324,  390, 623,  416, 318, 844, 267,
                          814,  322, 427, 625, 272, 380, 46,  1023, 10,  1022, 606, 792, 404, 10};
  const Ids completion_ids = {319, 826, 46, 1023};
  Ids ids = prompt_ids;
  ids.insert(ids.end(), completion_ids.begin(), completion_ids.end());
  std::vector<uint8_t> trained(prompt_ids.size(), 0);
  trained.resize(ids.size(), 1);

  const SampleSet as_chat =
      make("{\"messages\":[" + user(sentence) + "," + assistant("The horse.") + "]," + pair + "}\n");
  EXPECT_TRUE(as_chat.report.warnings.empty());
  ASSERT_EQ(as_chat.samples.size(), 1u);
  EXPECT_EQ(as_chat.samples[0].tokens, ids);
  EXPECT_EQ(as_chat.samples[0].trained, trained);
  EXPECT_EQ(as_chat.samples[0].line, 1);

  SampleOptions raw;
  raw.prompt_style = PromptStyle::Raw;
  raw.parse_special = true;
  const SampleSet as_raw = make("{" + pair + "}\n", raw);
  EXPECT_EQ(as_raw.samples[0].tokens, ids);
  EXPECT_EQ(as_raw.samples[0].trained, trained);

  const SampleSet as_pair = make("{\"prompt\":\"" + sentence + "\",\"completion\":\"The horse.\"}\n");
  EXPECT_EQ(as_pair.samples[0].tokens, ids);
  EXPECT_EQ(as_pair.samples[0].trained, trained);
}

TEST(Samples, EveryTurnOfAConversation) {
  const std::string row = chat(kSystem + "," + user("hi") + "," + assistant("yes") + "," + user("what") +
                               "," + assistant("no") + "," + user("and"));
  expect_shown(show(make(row).samples[0]),
               kSystemHeader + Shown{"so"} + kEnd + kUserHeader + Shown{"h", "i"} + kEnd + kAssistantHeader +
                   Shown{"+y", "+es"} + kTrainedEnd + kUserHeader + Shown{"wh", "at"} + kEnd +
                   kAssistantHeader + Shown{"+n", "+o", "+<|im_end|>"});  // what follows is left off
  SampleOptions last;
  last.train_on = TrainOn::LastAssistant;
  expect_shown(show(make(row, last).samples[0]),
               kSystemHeader + Shown{"so"} + kEnd + kUserHeader + Shown{"h", "i"} + kEnd + kAssistantHeader +
                   Shown{"y", "es"} + kEnd + kUserHeader + Shown{"wh", "at"} + kEnd + kAssistantHeader +
                   Shown{"+n", "+o", "+<|im_end|>"});
}

TEST(Samples, AllTokens) {
  SampleOptions all;
  all.train_on = TrainOn::All;
  EXPECT_EQ(
      show(make(chat(user("hi") + "," + assistant("no") + "," + user("hi")), all).samples[0]),
      (Shown{
          "<|im_start|>", "+us",  "+er",  "+\n", "+h", "+i",          "+<|im_end|>", "+\n", "+<|im_start|>",
          "+ass",         "+ist", "+ant", "+\n", "+n", "+o",          "+<|im_end|>", "+\n", "+<|im_start|>",
          "+us",          "+er",  "+\n",  "+h",  "+i", "+<|im_end|>", "+\n"}));
  expect_shown(show(make(chat(assistant("no", R"(,"weight":0)") + "," + user("hi")), all).samples[0]),
               kAssistantHeader + Shown{"n", "o"} + kEnd +
                   Shown{"+<|im_start|>", "+us", "+er", "+\n", "+h", "+i", "+<|im_end|>", "+\n"});
}

TEST(Samples, Weights) {
  const std::string row = chat(user("hi") + "," + assistant("yes", R"(,"weight":0)") + "," + user("hi") +
                               "," + assistant("no", R"(,"train":true)") + "," + assistant("so"));
  expect_shown(show(make(row).samples[0]), kUserHeader + Shown{"h", "i"} + kEnd + kAssistantHeader +
                                               Shown{"y", "es"} + kEnd + kUserHeader + Shown{"h", "i"} +
                                               kEnd + kAssistantHeader + Shown{"+n", "+o"} + kTrainedEnd +
                                               kAssistantHeader + Shown{"+so", "+<|im_end|>"});
  // The last turn alone, and it is switched off: nothing is left to train.
  SampleOptions last;
  last.train_on = TrainOn::LastAssistant;
  expect_refused(Code::BadData, "f.jsonl:1: nothing in this row is trained",
                 chat(user("hi") + "," + assistant("yes") + "," + assistant("no", R"(,"weight":0)")), last);
}

TEST(Samples, SpecialTextInContentStaysText) {
  const SampleSet set = make(chat(user("<|im_end|>") + "," + assistant("a<|im_end|>")));
  const Sample& s = set.samples[0];
  EXPECT_EQ(std::count(s.tokens.begin(), s.tokens.end(), 1023), 2);
  const Ids text = tale().encode("a<|im_end|>", false);
  ASSERT_EQ(std::count(s.trained.begin(), s.trained.end(), 1), static_cast<ptrdiff_t>(text.size()) + 1);
  const size_t begin = s.tokens.size() - text.size() - 1;
  EXPECT_EQ(Ids(s.tokens.begin() + static_cast<ptrdiff_t>(begin), s.tokens.end() - 1), text);
  EXPECT_EQ(s.trained[begin - 1], 0);
  EXPECT_EQ(s.trained[begin], 1);
  EXPECT_EQ(s.tokens.back(), 1023);
}

TEST(Samples, ContentIsNormalizedBeforeTheMaskIsLaid) {
  // Both contents get shorter by normalization; offsets of the raw text would shift the mask.
  const std::string raw = "e\u0301e\u0301e\u0301";
  expect_shown(show(make(chat(user(raw) + "," + assistant(raw) + "," + assistant("no"))).samples[0]),
               kUserHeader + Shown{"\xC3", "\xA9", "\xC3", "\xA9", "\xC3", "\xA9"} + kEnd + kAssistantHeader +
                   Shown{"+\xC3", "+\xA9", "+\xC3", "+\xA9", "+\xC3", "+\xA9"} + kTrainedEnd +
                   kAssistantHeader + Shown{"+n", "+o", "+<|im_end|>"});
}

TEST(Samples, ATokenBelongsToTheSideOfItsFirstByte) {
  // The header's newline and the content's first one make one token, which the prompt begins.
  expect_shown(show(make(chat(user("hi") + "," + assistant("\\n\\nok"))).samples[0]),
               kUserHeader + Shown{"h", "i"} + kEnd +
                   Shown{"<|im_start|>", "ass", "ist", "ant", "\n\n", "+\n", "+o", "+k", "+<|im_end|>"});
  SampleOptions raw;
  raw.prompt_style = PromptStyle::Raw;
  expect_shown(show(make(R"({"prompt":"The wo","completion":"lf said"})", raw).samples[0]),
               (Shown{"The", " wo", "+lf", "+ said", "+<|endoftext|>"}));
  expect_shown(show(make(R"({"prompt":"The sa","completion":"id it"})", raw).samples[0]),
               (Shown{"The", " said", "+ it", "+<|endoftext|>"}));
}

TEST(Samples, EmptyContents) {
  expect_shown(show(make(chat(user("") + "," + assistant(""))).samples[0]),
               kUserHeader + kEnd + kAssistantHeader + Shown{"+<|im_end|>"});
}

TEST(Samples, PromptAndCompletionAsMessages) {
  expect_shown(show(make("{\"prompt\":[" + user("hi") + "," + assistant("yes") + "," + user("hi") +
                         "],\"completion\":[" + assistant("no") + "]}")
                        .samples[0]),
               kUserHeader + Shown{"h", "i"} + kEnd + kAssistantHeader + Shown{"y", "es"} + kEnd +
                   kUserHeader + Shown{"h", "i"} + kEnd + kAssistantHeader +
                   Shown{"+n", "+o", "+<|im_end|>"});
  SampleOptions raw;
  raw.prompt_style = PromptStyle::Raw;
  expect_refused(Code::Usage, "f.jsonl:1: --prompt-style raw joins strings",
                 "{\"prompt\":[" + user("hi") + "],\"completion\":[" + assistant("no") + "]}", raw);
  expect_refused(Code::Usage, "--prompt-style raw needs prompt/completion rows",
                 chat(user("hi") + "," + assistant("no")), raw);
}

TEST(Samples, RawPrompts) {
  SampleOptions raw;
  raw.prompt_style = PromptStyle::Raw;
  expect_shown(show(make(R"({"prompt":"","completion":"The wolf"})", raw).samples[0]),
               (Shown{"The", "+ wo", "+lf", "+<|endoftext|>"}));  // nothing precedes the first token
  raw.train_on = TrainOn::All;
  expect_shown(show(make(R"({"prompt":"The","completion":" wolf"})", raw).samples[0]),
               (Shown{"The", "+ wo", "+lf", "+<|endoftext|>"}));
  raw.parse_special = true;
  raw.train_on = TrainOn::Assistant;
  expect_shown(show(make(R"({"prompt":"The","completion":" wolf<|im_end|>"})", raw).samples[0]),
               (Shown{"The", "+ wo", "+lf", "+<|im_end|>"}));  // ends a generation already
}

TEST(Samples, TextRows) {
  const SampleSet set =
      make("{\"text\":\"The wolf\"}\n{\"text\":\"a <|im_end|>\"}\n{\"text\":\"b <|im_end|>\"}\n");
  expect_shown(show(set.samples[0]), (Shown{"The", "+ wo", "+lf", "+<|endoftext|>"}));
  EXPECT_EQ(set.report.warnings,
            (std::vector<std::string>{"f.jsonl:2: '<|im_end|>' is read as plain text; --parse-special "
                                      "reads such text as a token (reported once)"}));
  EXPECT_EQ(std::count(set.samples[1].tokens.begin(), set.samples[1].tokens.end(), 1023), 0);

  SampleOptions special;
  special.parse_special = true;
  const SampleSet parsed = make("{\"text\":\"a <|im_end|>\"}\n{\"text\":\"<|endoftext|>The\"}\n", special);
  EXPECT_TRUE(parsed.report.warnings.empty());
  expect_shown(show(parsed.samples[0]), (Shown{"a", "+ ", "+<|im_end|>"}));
  expect_shown(show(parsed.samples[1]), (Shown{"<|endoftext|>", "+The", "+<|endoftext|>"}));

  expect_refused(Code::BadData, "f.jsonl:2: nothing in this row is trained (a text of fewer than two tokens)",
                 "{\"text\":\"The wolf\"}\n{\"text\":\"\"}\n");
  // A single token gets EOS as its target.
  expect_shown(show(make("{\"text\":\"The\"}").samples[0]), (Shown{"The", "+<|endoftext|>"}));
}

TEST(Samples, ExactlyOneBos) {
  VocabSource v = test::tale_vocab();
  const int32_t bos = test::add_token(v, "<bos>", TokenType::Control);
  v.bos = static_cast<uint32_t>(bos);
  v.add_bos = true;
  const Tokenizer t(v);
  SampleOptions special;
  special.parse_special = true;
  const SampleSet set = make("{\"text\":\"The wolf\"}\n{\"text\":\"<bos>The wolf\"}\n", special, t);
  for (const Sample& s : set.samples)
    expect_shown(show(s, t), (Shown{"<bos>", "+The", "+ wo", "+lf", "+<|endoftext|>"}));
  expect_shown(show(make(chat(user("hi") + "," + assistant("no")), {}, t).samples[0], t),
               Shown{"<bos>"} + kUserHeader + Shown{"h", "i"} + kEnd + kAssistantHeader +
                   Shown{"+n", "+o", "+<|im_end|>"});

  SampleOptions left;
  left.truncate = Truncate::Left;
  left.max_tokens = 5;
  expect_shown(show(make(chat(user("hi") + "," + assistant("no")), left, t).samples[0], t),
               (Shown{"<bos>", "\n", "+n", "+o", "+<|im_end|>"}));
  left.max_tokens = 4;
  expect_shown(show(make(chat(user("hi") + "," + assistant("no")), left, t).samples[0], t),
               (Shown{"<bos>", "+n", "+o", "+<|im_end|>"}));
  left.max_tokens = 3;
  expect_refused(Code::BadData, "cannot be cut on the left", chat(user("hi") + "," + assistant("no")), left,
                 t);
}

TEST(Samples, VocabularyWithoutEos) {
  VocabSource v = test::byte_vocab();
  const Tokenizer t(v);
  const SampleSet set = make("{\"text\":\"ab\"}\n{\"text\":\"cd\"}\n", {}, t);
  expect_shown(show(set.samples[1], t), (Shown{"c", "+d"}));
  EXPECT_EQ(set.report.warnings,
            (std::vector<std::string>{"f.jsonl: the vocabulary has no EOS token, rows end without one"}));
  expect_refused(Code::Unsupported, "no ChatML markers", R"({"prompt":"a","completion":"b"})", {}, t);
}

TEST(Samples, TooLongIsAnErrorThatNamesTheLongest) {
  SampleOptions o;
  o.max_tokens = 4;
  const std::string rows =
      "{\"text\":\"The\"}\n{\"text\":\"zqzqzqzqzq\"}\n{\"text\":\"The wolf\"}\n{\"text\":\"ijklmn\"}\n";
  expect_refused(
      Code::BadData,
      fmt::format("f.jsonl: 2 of 4 rows are longer than 4 tokens; the longest, line 2, has {}; raise "
                  "--max-seq-length, or use --truncate drop, left or middle",
                  tale().encode("zqzqzqzqzq", false).size() + 1),
      rows, o);
  o.truncate = Truncate::Drop;
  const SampleSet set = make(rows, o);
  ASSERT_EQ(set.samples.size(), 2u);
  EXPECT_EQ(set.samples[0].line, 1);
  EXPECT_EQ(set.samples[1].line, 3);
  ASSERT_EQ(set.report.dropped.size(), 2u);
  EXPECT_EQ(set.report.dropped[1].line, 4);
  EXPECT_EQ(set.report.dropped[1].reason,
            fmt::format("{} tokens, more than 4", tale().encode("ijklmn", false).size() + 1));
  o.max_tokens = 2;
  expect_refused(Code::BadData, "no row is left to train on, 1 of 1 were left out; the first, line 1: ",
                 "{\"text\":\"The wolf\"}\n", o);
  o.max_tokens = 1;
  expect_refused(Code::Usage, "--max-seq-length is 1", rows, o);
}

TEST(Samples, TruncateLeft) {
  const std::string row = chat(user("hi") + "," + assistant("yes"));
  // 4 + 2 + 2 + 5 tokens of prompt, 3 trained
  ASSERT_EQ(make(row).samples[0].tokens.size(), 16u);
  SampleOptions o;
  o.truncate = Truncate::Left;
  o.max_tokens = 16;
  EXPECT_EQ(make(row, o).report.n_shortened, 0);
  o.max_tokens = 8;
  const SampleSet set = make(row, o);
  expect_shown(show(set.samples[0]), kAssistantHeader + Shown{"+y", "+es", "+<|im_end|>"});
  EXPECT_EQ(set.report.n_shortened, 1);
  EXPECT_TRUE(set.report.dropped.empty());
  o.max_tokens = 4;
  expect_shown(show(make(row, o).samples[0]), (Shown{"\n", "+y", "+es", "+<|im_end|>"}));
  o.max_tokens = 3;  // the first target would have nothing before it
  expect_refused(
      Code::BadData,
      "f.jsonl: 1 of 1 rows are longer than 3 tokens and cannot be cut on the left without losing trained "
      "tokens; the longest, line 1, has 16; raise --max-seq-length, or use --truncate drop",
      row, o);
  o.max_tokens = 3;
  expect_refused(Code::BadData, "cannot be cut on the left", "{\"text\":\"The wolf\"}", o);
}

TEST(Samples, TruncateMiddle) {
  const std::string row =
      chat(kSystem + "," + assistant("so") + "," + user("hi") + "," + assistant("yes") + "," + user("what") +
           "," + assistant("so") + "," + user("hi") + "," + assistant("no") + "," + user("never read"));
  const Shown system = kSystemHeader + Shown{"so"} + kEnd;
  const Shown second = kUserHeader + Shown{"wh", "at"} + kEnd + kAssistantHeader + Shown{"+so"} + kTrainedEnd;
  const Shown last =
      kUserHeader + Shown{"h", "i"} + kEnd + kAssistantHeader + Shown{"+n", "+o", "+<|im_end|>"};
  SampleOptions o;
  o.truncate = Truncate::Middle;
  o.max_tokens = static_cast<int64_t>((system + second + last).size());
  const SampleSet two = make(row, o);  // the first exchange goes, with the turn before it
  expect_shown(show(two.samples[0]), system + second + last);
  EXPECT_EQ(two.report.n_shortened, 1);
  o.max_tokens -= 1;
  expect_shown(show(make(row, o).samples[0]), system + last);
  o.max_tokens = static_cast<int64_t>((system + last).size());
  expect_shown(show(make(row, o).samples[0]), system + last);
  o.max_tokens -= 1;
  expect_refused(Code::BadData, "even with the last exchange alone", row, o);
  expect_refused(Code::BadData, "only conversations are cut in the middle",
                 "{\"text\":\"" + std::string(99, 'x') + "\"}", o);
  // It fits whole: nothing is cut.
  o.max_tokens = 1000;
  EXPECT_EQ(make(row, o).report.n_shortened, 0);
}

TEST(Samples, TruncateMiddleLeavesOutNoMoreThanItMust) {
  std::string turns;
  std::vector<std::string> rows;  // with the newest 1, 2, ... exchanges
  for (int i = 0; i < 7; ++i) {
    turns = user("hi") + "," + assistant(std::string(static_cast<size_t>(1 + i % 3), 'q')) +
            (i > 0 ? "," : "") + turns;
    rows.push_back(chat(kSystem + "," + turns));
  }
  for (const std::string& kept : rows) {
    const Sample want = make(kept).samples[0];
    for (const int64_t spare : {0, 1}) {
      SampleOptions o;
      o.truncate = Truncate::Middle;
      o.max_tokens = static_cast<int64_t>(want.tokens.size()) + spare;
      EXPECT_EQ(make(rows.back(), o).samples[0].tokens, want.tokens);
    }
  }
}

TEST(Samples, RowsWithNothingToTrain) {
  const std::string rows =
      chat(user("hi")) + chat(user("hi") + "," + assistant("no")) + chat(assistant("no", R"(,"weight":0)"));
  expect_refused(Code::BadData,
                 "f.jsonl:1: nothing in this row is trained (no assistant turn or completion to train on); "
                 "--allow-empty-rows leaves such rows out",
                 rows);
  SampleOptions o;
  o.allow_empty_rows = true;
  const SampleSet set = make(rows, o);
  ASSERT_EQ(set.samples.size(), 1u);
  EXPECT_EQ(set.samples[0].line, 2);
  ASSERT_EQ(set.report.dropped.size(), 2u);
  EXPECT_EQ(set.report.dropped[0].line, 1);
  EXPECT_EQ(set.report.dropped[1].line, 3);
  expect_refused(Code::BadData, "no row is left to train on, 1 of 1 were left out", chat(user("hi")), o);
}

TEST(Samples, Report) {
  SampleOptions o;
  o.preview_rows = 2;
  const SampleSet set = make(
      "{\"prompt\":\"hi\",\"completion\":\"no\",\"id\":3}\n{\"prompt\":\"what\",\"completion\":\"é yes\"}\n"
      "{\"prompt\":\"hi\",\"completion\":\"no\"}\n",
      o);
  const SampleReport& r = set.report;
  EXPECT_EQ(r.n_rows, 3);
  EXPECT_EQ(r.n_tokens, 16 + 18 + 16);
  EXPECT_EQ(r.n_trained_tokens, 3 + 5 + 3);
  EXPECT_EQ(r.longest_tokens, 18);
  EXPECT_EQ(r.longest_line, 2);
  EXPECT_EQ(r.n_shortened, 0);
  EXPECT_EQ(r.warnings, (std::vector<std::string>{
                            "f.jsonl:1: key 'id' is not used in prompt/completion rows (reported once)"}));
  ASSERT_EQ(r.preview.size(), 2u);
  EXPECT_EQ(r.preview[0],
            (std::vector<PreviewPart>{{"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", false},
                                      {"no<|im_end|>", true}}));
  EXPECT_EQ(r.preview[1][1], (PreviewPart{"é yes<|im_end|>", true}));
}

TEST(Samples, NamesOfTheOptions) {
  EXPECT_EQ(parse_train_on("assistant"), TrainOn::Assistant);
  EXPECT_EQ(parse_train_on("last_assistant"), TrainOn::LastAssistant);
  EXPECT_EQ(parse_train_on("all"), TrainOn::All);
  EXPECT_EQ(parse_truncate("error"), Truncate::Error);
  EXPECT_EQ(parse_truncate("drop"), Truncate::Drop);
  EXPECT_EQ(parse_truncate("left"), Truncate::Left);
  EXPECT_EQ(parse_truncate("middle"), Truncate::Middle);
  EXPECT_EQ(parse_prompt_style("chat"), PromptStyle::Chat);
  EXPECT_EQ(parse_prompt_style("raw"), PromptStyle::Raw);
  try {
    parse_truncate("right");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Usage);
    EXPECT_STREQ(e.what(), "--truncate is 'right', wanted one of error, drop, left, middle");
  }
}

}  // namespace
}  // namespace tandem
