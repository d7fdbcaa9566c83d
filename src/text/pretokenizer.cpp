#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenizer.h"

#include <pcre2.h>

#include <string>

#include "base/error.h"
#include "io/quote.h"

namespace tandem {
namespace {

// Unicode's White_Space.  Spelled out because \s of PCRE2 also takes U+180E (codebase.md 13).
#define WS R"(\x09-\x0D\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})"
#define WS_ANY "[" WS "]"
#define WS_BUT_LAST WS_ANY "+(?![^" WS "])"
#define CONTRACTION R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))"

constexpr const char* kQwen2[] = {CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^)" WS
                                              R"(\p{L}\p{N}]+[\r\n]*|)" WS_ANY R"(*[\r\n]+|)" WS_BUT_LAST
                                              "|" WS_ANY "+"};
constexpr const char* kQwen35[] = {CONTRACTION R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^)" WS
                                               R"(\p{L}\p{M}\p{N}]+[\r\n]*|)" WS_ANY
                                               R"(*[\r\n]+|)" WS_BUT_LAST "|" WS_ANY "+"};
constexpr const char* kDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)",
                                    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" WS
                                    R"(\p{L}\p{N}]+|)" WS_BUT_LAST,
                                    R"(\p{N}+)", R"([0-9][0-9][0-9])"};

#undef CONTRACTION
#undef WS_BUT_LAST
#undef WS_ANY
#undef WS

struct Family {
  std::string_view name;
  const char* const* patterns;  // applied one after the other, each inside the pieces of those before
  int n_patterns;
  bool nfc;
  bool add_bos;
};
constexpr Family kFamilies[] = {
    {"qwen2", kQwen2, std::size(kQwen2), true, false},
    {"qwen35", kQwen35, std::size(kQwen35), true, false},
    {"default", kDefault, std::size(kDefault), false, false},
};

const Family& family_of(std::string_view name, std::string_view where) {
  for (const Family& f : kFamilies) {
    if (f.name == name) return f;
  }
  std::string known;
  for (const Family& f : kFamilies) known += fmt::format("{}{}", known.empty() ? "" : ", ", f.name);
  if (name.empty()) {
    fail(Code::Unsupported, "{}: no pre-tokenizer is named (tokenizer.ggml.pre); supported: {}", where,
         known);
  }
  fail(Code::Unsupported, "{}: pre-tokenizer {} (tokenizer.ggml.pre) is not supported; supported: {}", where,
       quote(name), known);
}

struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct FreeContext {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
using CodePtr = std::unique_ptr<pcre2_code, FreeCode>;
using MatchPtr = std::unique_ptr<pcre2_match_data, FreeMatch>;
using ContextPtr = std::unique_ptr<pcre2_match_context, FreeContext>;

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

CodePtr compile(const char* pattern) {
  int error = 0;
  PCRE2_SIZE where = 0;
  CodePtr code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error,
                             &where, nullptr));
  if (!code) fail(Code::Internal, "pattern does not compile at {}: {}", where, message_of(error));
  // Without JIT (PCRE2 built without it, or no executable memory) the interpreter gives the same matches.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

struct Pretokenizer::Impl {
  const Family* family = nullptr;
  std::vector<CodePtr> codes;
  ContextPtr context;
};

Pretokenizer::Pretokenizer(std::string_view family, std::string_view where) {
  auto impl = std::make_unique<Impl>();
  impl->family = &family_of(family, where);
  for (int i = 0; i < impl->family->n_patterns; ++i)
    impl->codes.push_back(compile(impl->family->patterns[i]));
  impl->context.reset(pcre2_match_context_create(nullptr));
  TANDEM_CHECK(impl->context);
  // The default limit counts backtracking steps and would refuse a long run of spaces; the patterns backtrack
  // at most once over a run, so the time stays linear without it.
  pcre2_set_match_limit(impl->context.get(), UINT32_MAX);
  impl_ = std::move(impl);
}

Pretokenizer::~Pretokenizer() = default;
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;

bool Pretokenizer::wants_nfc() const { return impl_->family->nfc; }
bool Pretokenizer::default_add_bos() const { return impl_->family->add_bos; }

void Pretokenizer::split(std::string_view text, std::vector<uint32_t>& ends) const {
  TANDEM_CHECK(text.size() <= INT32_MAX);
  ends.clear();
  if (text.empty()) return;
  ends.push_back(static_cast<uint32_t>(text.size()));
  std::vector<uint32_t> next;
  for (const CodePtr& code : impl_->codes) {
    const MatchPtr match(pcre2_match_data_create(1, nullptr));
    TANDEM_CHECK(match);
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match.get());
    next.clear();
    uint32_t begin = 0;
    for (const uint32_t end : ends) {
      // A piece is its own subject: neither the look-ahead nor a run sees what lies outside it.
      const std::string_view piece = text.substr(begin, end - begin);
      size_t at = 0;
      while (at < piece.size()) {
        const int rc = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(), at,
                                   PCRE2_NO_UTF_CHECK, match.get(), impl_->context.get());
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) fail(Code::Internal, "pre-tokenizer {}: {}", impl_->family->name, message_of(rc));
        TANDEM_CHECK(found[1] > found[0]);  // no pattern matches the empty text
        if (found[0] > at) next.push_back(begin + static_cast<uint32_t>(found[0]));
        next.push_back(begin + static_cast<uint32_t>(found[1]));
        at = found[1];
      }
      if (at < piece.size()) next.push_back(end);
      begin = end;
    }
    ends.swap(next);
  }
}

}  // namespace tandem
