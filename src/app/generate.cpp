#include <chrono>
#include <nlohmann/json.hpp>

#include "app/adapters.h"
#include "app/commands.h"
#include "app/engine.h"
#include "app/output.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "models/runner.h"
#include "models/sampler.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/vocab.h"

namespace tandem {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

std::vector<int32_t> prompt_tokens(const Options& o, const Tokenizer& tokenizer) {
  const std::string& prompt = o.text(Opt::Prompt);
  if (o.on(Opt::Chat)) {
    const Message message{.role = "user", .content = prompt, .train = std::nullopt};
    return encode_chat(tokenizer, {&message, 1}, true);
  }
  std::vector<int32_t> tokens = tokenizer.encode(prompt, true);
  const std::optional<int32_t> bos = tokenizer.bos();
  if (tokenizer.add_bos() && bos && (tokens.empty() || tokens.front() != *bos))
    tokens.insert(tokens.begin(), *bos);
  if (tokens.empty()) fail(Code::Usage, "the prompt is empty, and this vocabulary begins no text by itself");
  return tokens;
}

// Tokens of prompt and answer that the session must hold.
int64_t context_tokens(const Options& o, const Model& model, int64_t n_prompt) {
  const int64_t longest = model.hparams().n_ctx_train, given = o.integer(Opt::CtxSize),
                n_predict = o.integer(Opt::NPredict);
  if (given > longest)
    fail(Code::Usage, "--ctx-size {} is beyond the model's context of {} tokens", given, longest);
  const int64_t limit = given > 0 ? given : longest;
  if (n_prompt > limit) {
    fail(Code::Usage, "the prompt has {} tokens, the context {}{}", n_prompt, limit,
         given > 0 && n_prompt <= longest ? "; raise --ctx-size" : "; shorten the prompt");
  }
  return n_predict < 0 ? limit : std::min(limit, n_prompt + n_predict);
}

struct Answer {
  std::vector<int32_t> tokens;  // without the end-of-generation token
  std::string text;
  const char* stop = "limit";  // eos, limit (-n), context
  json steps = json::array();
};

// Hands complete characters to `show` as they come.
Answer run(Session& session, const Tokenizer& tokenizer, const Options& o, const std::vector<int32_t>& prompt,
           int64_t context, const std::function<void(std::string_view)>& show) {
  Sampler sampler({.temp = static_cast<float>(o.number(Opt::Temp)),
                   .top_k = o.integer(Opt::TopK),
                   .top_p = static_cast<float>(o.number(Opt::TopP)),
                   .min_p = static_cast<float>(o.number(Opt::MinP)),
                   .seed = static_cast<uint64_t>(o.integer(Opt::Seed))});
  const auto n_top = static_cast<size_t>(o.integer(Opt::LogProbs));
  const int64_t n_predict = o.integer(Opt::NPredict);
  Answer answer;
  Utf8Stream stream;
  const auto take = [&](const std::string& text) {
    answer.text += text;
    show(text);
  };
  std::span<const float> logits = session.append(prompt);
  while (n_predict < 0 || static_cast<int64_t>(answer.tokens.size()) < n_predict) {
    const int32_t token = sampler.sample(logits);
    if (n_top > 0) {
      json top = json::array();
      for (const auto& [id, logit] : top_logits(logits, n_top)) top.push_back({id, logit});
      answer.steps.push_back({{"token", token}, {"top", top}});
    }
    if (token >= tokenizer.n_vocab() || tokenizer.is_end_of_generation(token)) {
      answer.stop = "eos";
      break;
    }
    answer.tokens.push_back(token);
    if (tokenizer.token_type(token) != TokenType::Control) take(stream.push(tokenizer.token_bytes(token)));
    if (session.n_tokens() == context) {
      if (static_cast<int64_t>(answer.tokens.size()) != n_predict) answer.stop = "context";
      break;
    }
    if (static_cast<int64_t>(answer.tokens.size()) == n_predict) break;
    logits = session.append({&token, 1});
  }
  take(stream.finish());
  return answer;
}

}  // namespace

int generate_command(const Options& o) {
  const bool as_json = o.on(Opt::Json);
  if (o.integer(Opt::LogProbs) > 0 && !as_json) fail(Code::Usage, "--logprobs needs --json");
  if (o.integer(Opt::SegmentTokens) % kRangeAlign) {
    fail(Code::Usage, "--ubatch-size must be a multiple of {}, not {}", kRangeAlign,
         o.integer(Opt::SegmentTokens));
  }
  Engine engine(o);
  const Model model = Model::open(o.text(Opt::Model), model_options(o));
  const Tokenizer tokenizer(read_vocab(model.file()));
  const std::vector<int32_t> prompt = prompt_tokens(o, tokenizer);
  const int64_t context = context_tokens(o, model, static_cast<int64_t>(prompt.size()));
  const std::vector<AdapterSet> adapters = load_adapters(o, model);
  std::vector<const AdapterSet*> applied;
  for (const AdapterSet& a : adapters) applied.push_back(&a);

  Session session(model, engine.backend, applied, context, o.integer(Opt::SegmentTokens),
                  chosen_precision(o, engine));
  const MemoryPlan plan = session.plan();
  const size_t need = plan.persistent + plan.arena, available = available_memory_bytes();
  if (need > available) {
    fail(Code::OutOfMemory, "generating needs {}, available are {}; a smaller --ctx-size (now {}) needs less",
         format_bytes(need), format_bytes(available), context);
  }
  session.allocate();
  const Clock::time_point start = Clock::now();
  const Answer answer = run(session, tokenizer, o, prompt, context, [&](std::string_view text) {
    if (!as_json && !text.empty()) print_text(text);
  });
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  log_info("{} prompt tokens, {} generated, {:.2f} s", prompt.size(), answer.tokens.size(), seconds);
  if (std::string_view(answer.stop) == "context") {
    log_warn("the answer stops where the context of {} tokens is full; a larger --ctx-size gives it room",
             context);
  }
  if (!as_json) {
    print_text("\n");
    return 0;
  }
  json out{{"type", "generate"},  {"prompt_tokens", prompt}, {"tokens", answer.tokens},
           {"text", answer.text}, {"stop", answer.stop},     {"seconds", seconds}};
  if (o.integer(Opt::LogProbs) > 0) out["steps"] = answer.steps;
  print_json(out);
  return 0;
}

}  // namespace tandem
