// Vocabularies for tests.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace tandem::test {

// The 1024 tokens of tests/data/tale-tokenizer.json: ids 0 to 255 are the bytes, 1021 <|endoftext|> (eos),
// 1022 <|im_start|>, 1023 <|im_end|> (eot).
VocabSource tale_vocab();

// The part of Qwen3's vocabulary in tests/data/qwen3-subset.json, under its own ids.
VocabSource qwen3_vocab();

struct EncodedText {
  std::string text;
  std::vector<int32_t> ids;
};
// Texts and the ids that another implementation gives them with qwen3_vocab().
std::vector<EncodedText> qwen3_cases();

// 256 tokens, one per byte in the order of the bytes, and no merges.
VocabSource byte_vocab();

// Appends a token and gives its id.
int32_t add_token(VocabSource& vocab, const std::string& text, TokenType type);

}  // namespace tandem::test
