// The vocabulary of a GGUF file.
#pragma once
#include "io/gguf.h"
#include "text/tokenizer.h"

namespace tandem {

// Reads the tokenizer.* keys; Tokenizer checks what they say.
// Throws: BadData for a required key that is missing, or a value of the wrong type.  Source: tokenizer.md 1.
VocabSource read_vocab(const GgufFile& file);

}  // namespace tandem
