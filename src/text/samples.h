// Training samples: rows of text as tokens, with a mask of those the model learns to predict.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/rows.h"
#include "text/tokenizer.h"

namespace tandem {

// Which tokens of a conversation are trained.
enum class TrainOn {
  Assistant,      // what the model must produce in every assistant turn
  LastAssistant,  // in the last one
  All,            // every token that has one before it, except turns of weight 0
};

// What happens to a row of more than max_tokens tokens.
enum class Truncate {
  Error,
  Drop,    // the row is left out
  Left,    // the oldest tokens are cut off, the trained part is kept whole
  Middle,  // the oldest whole exchanges are left out, system messages and the last exchange are kept
};

// How a prompt and a completion are joined.
enum class PromptStyle {
  Chat,  // a user and an assistant turn
  Raw,   // as they are
};

// Values of --train-on, --truncate and --prompt-style.  Throws: Usage.  Source: api.md 8 and 10.
TrainOn parse_train_on(std::string_view name);
Truncate parse_truncate(std::string_view name);
PromptStyle parse_prompt_style(std::string_view name);

struct SampleOptions {
  TrainOn train_on = TrainOn::Assistant;
  Truncate truncate = Truncate::Error;
  int64_t max_tokens = 2048;  // of one sample, at least 2
  PromptStyle prompt_style = PromptStyle::Chat;
  bool parse_special = false;     // read control tokens in text rows and raw prompts
  bool allow_empty_rows = false;  // leave out rows without a trained token instead of failing
  size_t preview_rows = 2;
};

struct Sample {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;  // trained[i]: token i is to be predicted from those before it; [0] is 0
  int64_t line = 0;              // of the row
};

// A stretch of tokens that are all trained or all not.
struct PreviewPart {
  std::string text;  // control tokens shown
  bool trained;
  bool operator==(const PreviewPart&) const = default;
};

struct DroppedRow {
  int64_t line;
  std::string reason;
};

struct SampleReport {
  int64_t n_rows = 0;    // samples made
  int64_t n_tokens = 0;  // of all samples
  int64_t n_trained_tokens = 0;
  int64_t longest_tokens = 0;  // of the longest sample
  int64_t longest_line = 0;
  int64_t n_shortened = 0;  // rows cut to max_tokens
  std::vector<DroppedRow> dropped;
  std::vector<std::string> warnings;              // those of the file, and ours
  std::vector<std::vector<PreviewPart>> preview;  // of the first samples
};

struct SampleSet {
  std::vector<Sample> samples;  // in the order of the rows
  SampleReport report;
};

// Tokenizes every row, whole and once, and marks the trained tokens: a token is trained if its first byte is.
// What follows the last trained token is left off, since nothing is predicted there; BOS comes first where
// the vocabulary wants one; raw and text rows end in EOS unless they end in an end-of-generation token.
// Throws: BadData for a row without trained tokens, for rows that are too long, and when no row is left;
// Unsupported for conversations with a model without chat markers; Usage for options that do not fit the
// rows.  Source: api.md 8.
SampleSet make_samples(const RowFile& file, const Tokenizer& tokenizer, const SampleOptions& options);

}  // namespace tandem
