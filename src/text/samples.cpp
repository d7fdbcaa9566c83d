#include "text/samples.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "io/quote.h"
#include "text/chat.h"

namespace tandem {
namespace {

// A stretch of a row, normalized on its own.
struct MaskedPart {
  std::string text;
  bool parse_special;
  bool trained;
};

bool is_system(const Message& m) { return m.role == "system" || m.role == "developer"; }

// How many exchanges a conversation has: each begins at a user message; what stands before the first belongs
// to it.
size_t count_exchanges(std::span<const Message> messages) {
  const auto n =
      std::count_if(messages.begin(), messages.end(), [](const Message& m) { return m.role == "user"; });
  return std::max<size_t>(1, static_cast<size_t>(n));
}

// The conversation without its `n` oldest exchanges; system messages stay.
std::vector<Message> without_exchanges(std::span<const Message> messages, size_t n) {
  std::vector<Message> kept;
  size_t n_users = 0;
  for (const Message& m : messages) {
    if (m.role == "user") ++n_users;
    const size_t exchange = std::max<size_t>(1, n_users);  // from 1
    if (is_system(m) || exchange > n) kept.push_back(m);
  }
  return kept;
}

class Maker {
 public:
  Maker(const RowFile& file, const Tokenizer& tokenizer, const SampleOptions& options)
      : file_(file), tokenizer_(tokenizer), options_(options) {}

  SampleSet run() {
    check_options();
    out_.report.warnings = file_.warnings;
    for (const Row& row : file_.rows) add(row);
    finish();
    return std::move(out_);
  }

 private:
  void check_options() const {
    if (options_.max_tokens < 2) {
      fail(Code::Usage, "--max-seq-length is {}, wanted at least 2: one token and the next to predict",
           options_.max_tokens);
    }
    if (options_.prompt_style == PromptStyle::Raw && file_.kind == RowKind::Messages) {
      fail(Code::Usage, "{}: --prompt-style raw needs prompt/completion rows, these are messages rows",
           file_.name);
    }
  }

  void add(const Row& row) {
    row_ = &row;
    std::optional<Sample> sample = sample_of(row);
    if (!sample) return;
    sample->line = row.line;
    const auto n_tokens = static_cast<int64_t>(sample->tokens.size());
    const auto n_trained = std::count(sample->trained.begin(), sample->trained.end(), uint8_t{1});
    SampleReport& report = out_.report;
    report.n_rows += 1;
    report.n_tokens += n_tokens;
    report.n_trained_tokens += n_trained;
    if (n_tokens > report.longest_tokens) {
      report.longest_tokens = n_tokens;
      report.longest_line = row.line;
    }
    if (report.preview.size() < options_.preview_rows) report.preview.push_back(preview_of(*sample));
    out_.samples.push_back(std::move(*sample));
  }

  // The sample of a row, or nothing when the row is dropped or counted as too long.
  std::optional<Sample> sample_of(const Row& row) {
    const bool strings = file_.kind == RowKind::PromptCompletion && row.messages.empty();
    if (file_.kind == RowKind::Text) return plain_sample({plain_part(row.text, true)});
    if (strings && options_.prompt_style == PromptStyle::Raw) {
      const bool all = options_.train_on == TrainOn::All;
      return plain_sample({plain_part(row.prompt, all), plain_part(row.completion, true)});
    }
    if (options_.prompt_style == PromptStyle::Raw) {
      fail(Code::Usage, "{}:{}: --prompt-style raw joins strings, this row has lists of messages", file_.name,
           row.line);
    }
    if (!strings) return chat_sample(row.messages, row.n_prompt_messages);
    return chat_sample({{"user", row.prompt, {}}, {"assistant", row.completion, {}}}, 1);
  }

  MaskedPart plain_part(const std::string& text, bool trained) {
    MaskedPart part{tokenizer_.normalize(text, options_.parse_special), options_.parse_special, trained};
    if (!options_.parse_special && !warned_special_) {
      if (const auto id = tokenizer_.find_control(part.text)) {
        warned_special_ = true;
        warn(fmt::format(
            "{}:{}: {} is read as plain text; --parse-special reads such text as a token (reported once)",
            file_.name, row_->line, quote(tokenizer_.token_text(*id))));
      }
    }
    return part;
  }

  std::optional<Sample> plain_sample(const std::vector<MaskedPart>& parts) {
    return settle(encode(parts, true), {});
  }

  std::optional<Sample> chat_sample(std::vector<Message> messages, size_t n_prompt_messages) {
    decide_turns(messages, n_prompt_messages);
    return settle(encode(chat_parts(messages), false), messages);
  }

  // What becomes of a row's sample: itself, a shorter one, or nothing when the row is dropped or counted as
  // too long.
  std::optional<Sample> settle(Sample sample, std::span<const Message> messages) {
    if (!has_target(sample)) {
      drop_empty();
      return std::nullopt;
    }
    const auto n_tokens = static_cast<int64_t>(sample.tokens.size());
    if (n_tokens <= options_.max_tokens) return sample;
    std::optional<Sample> shorter;
    switch (options_.truncate) {
      case Truncate::Error:
        break;
      case Truncate::Drop:
        drop(fmt::format("{} tokens, more than {}", n_tokens, options_.max_tokens));
        return std::nullopt;
      case Truncate::Left:
        shorter = cut_left(sample);
        break;
      case Truncate::Middle:
        shorter = cut_middle(messages);
        break;
    }
    if (shorter) {
      ++out_.report.n_shortened;
      return shorter;
    }
    ++n_too_long_;
    if (n_tokens > too_long_tokens_) {
      too_long_tokens_ = n_tokens;
      too_long_line_ = row_->line;
    }
    return std::nullopt;
  }

  // The newest max_tokens tokens, after BOS where the vocabulary wants one; nothing when that would cost a
  // trained token or leave the first of them with nothing before it.
  std::optional<Sample> cut_left(const Sample& s) const {
    const size_t n_bos = tokenizer_.add_bos() ? 1 : 0;
    const size_t begin = s.tokens.size() - (static_cast<size_t>(options_.max_tokens) - n_bos);
    const auto first =
        static_cast<size_t>(std::find(s.trained.begin(), s.trained.end(), uint8_t{1}) - s.trained.begin());
    if (begin + 1 > first + n_bos) return std::nullopt;
    Sample out;
    if (n_bos > 0) push(out, *tokenizer_.bos(), false);
    for (size_t i = begin; i < s.tokens.size(); ++i) push(out, s.tokens[i], s.trained[i] != 0);
    return out;
  }

  // The conversation without the fewest oldest exchanges that make it fit (the length falls with their
  // number); nothing when the last exchange alone is too long.
  std::optional<Sample> cut_middle(std::span<const Message> messages) {
    size_t low = 1, high = count_exchanges(messages) - 1;
    std::optional<Sample> best;
    while (low <= high) {
      const size_t n = low + (high - low) / 2;
      Sample shorter = encode(chat_parts(without_exchanges(messages, n)), false);
      if (static_cast<int64_t>(shorter.tokens.size()) <= options_.max_tokens) {
        best = std::move(shorter);
        high = n - 1;
      } else {
        low = n + 1;
      }
    }
    return best && has_target(*best) ? std::move(best) : std::nullopt;
  }

  // Sets `train` of every message, and cuts off the messages after the last one that is trained.
  void decide_turns(std::vector<Message>& messages, size_t n_prompt_messages) const {
    if (options_.train_on == TrainOn::All) return;
    size_t keep = 0;     // up to the last turn that is trained
    bool later = false;  // whether a later assistant turn exists
    for (size_t i = messages.size(); i-- > 0;) {
      Message& m = messages[i];
      const bool candidate = m.role == "assistant" && i >= n_prompt_messages &&
                             !(later && options_.train_on == TrainOn::LastAssistant);
      later = later || m.role == "assistant";
      m.train = candidate && m.train.value_or(true);
      if (*m.train && keep == 0) keep = i + 1;
    }
    if (keep > 0) messages.resize(keep);  // a row without trained turns stays whole
  }

  std::vector<MaskedPart> chat_parts(const std::vector<Message>& messages) const {
    std::vector<MaskedPart> parts;
    for (ChatPart& p : render_chat(tokenizer_, messages, false)) {
      const bool all =
          options_.train_on == TrainOn::All && messages[static_cast<size_t>(p.message)].train.value_or(true);
      parts.push_back({std::move(p.text), p.from_template, p.trained || all});
    }
    return parts;
  }

  // Tokens and mask of a row; with `plain` EOS ends it.
  Sample encode(const std::vector<MaskedPart>& parts, bool plain) {
    std::vector<TextPart> texts;
    texts.reserve(parts.size());
    for (const MaskedPart& p : parts) texts.push_back({p.text, p.parse_special});
    const std::vector<TokenSpan> spans = tokenizer_.encode_parts(texts);

    Sample s;
    const bool has_bos = !spans.empty() && tokenizer_.bos() && spans.front().id == *tokenizer_.bos();
    if (tokenizer_.add_bos() && !has_bos) push(s, *tokenizer_.bos(), false);
    size_t part = 0;
    size_t part_end = parts.empty() ? 0 : parts[0].text.size();  // offset in the concatenation
    for (const TokenSpan& span : spans) {
      while (span.begin >= part_end) part_end += parts[++part].text.size();
      push(s, span.id, parts[part].trained);
    }
    if (plain && (s.tokens.empty() || !tokenizer_.is_end_of_generation(s.tokens.back()))) {
      if (tokenizer_.eos()) {
        push(s, *tokenizer_.eos(), true);
      } else if (!warned_eos_) {
        warned_eos_ = true;
        warn(fmt::format("{}: the vocabulary has no EOS token, rows end without one", file_.name));
      }
    }
    if (!s.trained.empty()) s.trained[0] = 0;  // nothing comes before it
    const auto last = std::find(s.trained.rbegin(), s.trained.rend(), uint8_t{1});
    if (last != s.trained.rend()) {
      s.trained.erase(last.base(), s.trained.end());
      s.tokens.resize(s.trained.size());
    }
    return s;
  }

  static void push(Sample& s, int32_t id, bool trained) {
    s.tokens.push_back(id);
    s.trained.push_back(trained ? 1 : 0);
  }

  static bool has_target(const Sample& s) {
    return std::find(s.trained.begin(), s.trained.end(), uint8_t{1}) != s.trained.end();
  }

  void drop_empty() {
    const std::string_view reason = file_.kind == RowKind::Text
                                        ? "a text of fewer than two tokens"
                                        : "no assistant turn or completion to train on";
    if (!options_.allow_empty_rows) {
      fail(Code::BadData,
           "{}:{}: nothing in this row is trained ({}); --allow-empty-rows leaves such rows out", file_.name,
           row_->line, reason);
    }
    drop(fmt::format("nothing to train: {}", reason));
  }

  void drop(std::string reason) { out_.report.dropped.push_back({row_->line, std::move(reason)}); }
  void warn(std::string text) { out_.report.warnings.push_back(std::move(text)); }

  std::vector<PreviewPart> preview_of(const Sample& s) const {
    std::vector<PreviewPart> parts;
    for (size_t begin = 0; begin < s.tokens.size();) {
      size_t end = begin;
      while (end < s.tokens.size() && s.trained[end] == s.trained[begin]) ++end;
      const std::span<const int32_t> tokens(s.tokens.data() + begin, end - begin);
      parts.push_back({tokenizer_.decode(tokens, true), s.trained[begin] != 0});
      begin = end;
    }
    return parts;
  }

  void finish() const {
    if (n_too_long_ > 0) {
      std::string_view why, remedy = "raise --max-seq-length, or use --truncate drop";
      switch (options_.truncate) {
        case Truncate::Error:
        case Truncate::Drop:
          remedy = "raise --max-seq-length, or use --truncate drop, left or middle";
          break;
        case Truncate::Left:
          why = " and cannot be cut on the left without losing trained tokens";
          break;
        case Truncate::Middle:
          why = " even with the last exchange alone (only conversations are cut in the middle)";
          break;
      }
      fail(Code::BadData, "{}: {} of {} rows are longer than {} tokens{}; the longest, line {}, has {}; {}",
           file_.name, n_too_long_, file_.rows.size(), options_.max_tokens, why, too_long_line_,
           too_long_tokens_, remedy);
    }
    if (out_.samples.empty()) {
      fail(Code::BadData, "{}: no row is left to train on, {} of {} were left out{}", file_.name,
           out_.report.dropped.size(), file_.rows.size(),
           out_.report.dropped.empty() ? ""
                                       : fmt::format("; the first, line {}: {}", out_.report.dropped[0].line,
                                                     out_.report.dropped[0].reason));
    }
  }

  const RowFile& file_;
  const Tokenizer& tokenizer_;
  const SampleOptions& options_;
  const Row* row_ = nullptr;  // the one being read
  SampleSet out_;
  int64_t n_too_long_ = 0;
  int64_t too_long_tokens_ = 0;  // of the longest of them
  int64_t too_long_line_ = 0;
  bool warned_special_ = false;
  bool warned_eos_ = false;
};

template <class T, size_t N>
T parse_choice(std::string_view name, std::string_view flag,
               const std::pair<std::string_view, T> (&choices)[N]) {
  std::string known;
  for (const auto& [text, value] : choices) {
    if (name == text) return value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", text);
  }
  fail(Code::Usage, "{} is {}, wanted one of {}", flag, quote(name), known);
}

}  // namespace

TrainOn parse_train_on(std::string_view name) {
  return parse_choice<TrainOn>(
      name, "--train-on",
      {{"assistant", TrainOn::Assistant}, {"last_assistant", TrainOn::LastAssistant}, {"all", TrainOn::All}});
}

Truncate parse_truncate(std::string_view name) {
  return parse_choice<Truncate>(name, "--truncate",
                                {{"error", Truncate::Error},
                                 {"drop", Truncate::Drop},
                                 {"left", Truncate::Left},
                                 {"middle", Truncate::Middle}});
}

PromptStyle parse_prompt_style(std::string_view name) {
  return parse_choice<PromptStyle>(name, "--prompt-style",
                                   {{"chat", PromptStyle::Chat}, {"raw", PromptStyle::Raw}});
}

SampleSet make_samples(const RowFile& file, const Tokenizer& tokenizer, const SampleOptions& options) {
  return Maker(file, tokenizer, options).run();
}

}  // namespace tandem
