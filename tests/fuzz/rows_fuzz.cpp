// Any bytes are either read as training rows and made into samples that fit, or refused with an Error.
// Input: a byte of options, a byte of the largest sample, then JSON Lines.
#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "text/samples.h"

using namespace tandem;
using fuzz::require;

namespace {

SampleOptions options_of(uint8_t choice, uint8_t length) {
  SampleOptions o;
  o.train_on = static_cast<TrainOn>(choice % 3);
  o.truncate = static_cast<Truncate>(choice / 3 % 4);
  o.prompt_style = choice / 12 % 2 ? PromptStyle::Raw : PromptStyle::Chat;
  o.parse_special = choice / 24 % 2;
  o.allow_empty_rows = choice / 48 % 2;
  o.max_tokens = 2 + length;
  return o;
}

void check(const SampleSet& set, const RowFile& file, const Tokenizer& t, const SampleOptions& o) {
  require(!set.samples.empty() && set.samples.size() + set.report.dropped.size() == file.rows.size());
  int64_t n_tokens = 0, n_trained = 0;
  for (const Sample& s : set.samples) {
    require(s.tokens.size() >= 2 && static_cast<int64_t>(s.tokens.size()) <= o.max_tokens);
    require(s.trained.size() == s.tokens.size() && s.trained[0] == 0 && s.trained.back() == 1);
    for (const int32_t id : s.tokens) require(id >= 0 && id < t.n_vocab());
    n_tokens += static_cast<int64_t>(s.tokens.size());
    n_trained += std::count(s.trained.begin(), s.trained.end(), uint8_t{1});
  }
  require(set.report.n_rows == static_cast<int64_t>(set.samples.size()));
  require(set.report.n_tokens == n_tokens && set.report.n_trained_tokens == n_trained);
  for (const std::string& w : set.report.warnings) require(is_utf8(w));
  for (const DroppedRow& d : set.report.dropped) require(is_utf8(d.reason));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer tokenizer = [] {
    VocabSource v = fuzz::byte_vocab("qwen2");
    v.eos =
        static_cast<uint32_t>(std::find(v.tokens.begin(), v.tokens.end(), "<|im_end|>") - v.tokens.begin());
    return Tokenizer(std::move(v));
  }();
  if (size < 2) return 0;
  const SampleOptions options = options_of(data[0], data[1]);
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  try {
    const RowFile file = parse_rows(text, "fuzz");
    for (const std::string& w : file.warnings) require(is_utf8(w));
    check(make_samples(file, tokenizer, options), file, tokenizer, options);
  } catch (const Error& e) {
    fuzz::require_refusal(e);
  }
  return 0;
}
