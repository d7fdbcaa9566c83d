#include "text/rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "io/jsonl.h"
#include "io/quote.h"

namespace tandem {
namespace {

using nlohmann::json;

// Bounds what a file of ever new keys makes us remember and print.
constexpr size_t kMaxWarnings = 50;

constexpr std::string_view kMessageKeys[] = {"role", "content", "tool_calls", "tool_call_id",
                                             "name", "weight",  "train"};

std::string_view name_of(RowKind kind) {
  switch (kind) {
    case RowKind::Messages:
      return "messages";
    case RowKind::PromptCompletion:
      return "prompt/completion";
    case RowKind::Text:
      return "text";
  }
  return "";
}

// The member, or null when it is absent or null.
const json* member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

class Reader {
 public:
  explicit Reader(RowFile& file) : file_(file) {}

  void row(size_t line, const json& object) {
    line_ = static_cast<int64_t>(line);
    const RowKind kind = kind_of(object);
    if (file_.rows.empty()) {
      file_.kind = kind;
      first_line_ = line_;
    } else if (kind != file_.kind) {
      bad("this is a {} row, line {} is a {} row; one file holds one kind", name_of(kind), first_line_,
          name_of(file_.kind));
    }
    Row row;
    row.line = line_;
    switch (kind) {
      case RowKind::Messages:
        read_messages(object, row);
        break;
      case RowKind::PromptCompletion:
        read_pair(object, row);
        break;
      case RowKind::Text:
        row.text = string_of(*member(object, "text"), "text");
        check_keys(object, {"text"}, "", "text rows");
        break;
    }
    file_.rows.push_back(std::move(row));
  }

 private:
  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(Code::BadData, "{}:{}: {}", file_.name, line_, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    fail(Code::Unsupported, "{}:{}: {}", file_.name, line_, what);
  }

  void warn_once(const std::string& about, std::string_view text) {
    if (warned_.size() >= kMaxWarnings || !warned_.insert(about).second) return;
    file_.warnings.push_back(fmt::format("{}:{}: {} (reported once)", file_.name, line_, text));
  }

  RowKind kind_of(const json& object) const {
    if (member(object, "messages")) return RowKind::Messages;
    if (member(object, "prompt") || member(object, "completion")) return RowKind::PromptCompletion;
    if (member(object, "text")) return RowKind::Text;
    bad("the row has none of the keys messages, prompt and completion, text");
  }

  // Warns of keys that nothing reads; `place` is the key of the object that has them, with its point.
  void check_keys(const json& object, std::initializer_list<std::string_view> known, std::string_view place,
                  std::string_view rows) {
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      warn_once(fmt::format("{}{}", place, key),
                fmt::format("key {} is not used in {}", quote(fmt::format("{}{}", place, key)), rows));
    }
  }

  std::string string_of(const json& value, std::string_view where) const {
    if (!value.is_string()) bad("{} is of type {}, wanted a string", where, value.type_name());
    return value.get<std::string>();
  }

  // Tools and template arguments, which belong to full templates.
  void check_template_keys(const json& object) {
    if (const json* tools = member(object, "tools")) {
      if (!tools->is_array()) bad("tools is of type {}, wanted a list", tools->type_name());
      if (!tools->empty())
        unsupported("tools are not supported yet; remove the key to train on the text alone");
    }
    if (const json* arguments = member(object, "chat_template_kwargs")) {
      if (!arguments->is_object())
        bad("chat_template_kwargs is of type {}, wanted an object", arguments->type_name());
      if (!arguments->empty())
        warn_once("chat_template_kwargs", "chat_template_kwargs has no effect on ChatML");
    }
  }

  void read_messages(const json& object, Row& row) {
    check_template_keys(object);
    row.messages = messages_of(*member(object, "messages"), "messages");
    check_keys(object, {"messages", "tools", "chat_template_kwargs", "prompt", "completion"}, "",
               "messages rows");
  }

  void read_pair(const json& object, Row& row) {
    check_template_keys(object);
    const json* prompt = member(object, "prompt");
    const json* completion = member(object, "completion");
    if (!prompt || !completion) {
      bad("the row has a {} but no {}", prompt ? "prompt" : "completion", prompt ? "completion" : "prompt");
    }
    if (prompt->is_array() && completion->is_array()) {
      row.messages = messages_of(*prompt, "prompt");
      row.n_prompt_messages = row.messages.size();
      for (const Message& m : row.messages) {
        if (m.train.value_or(false))
          bad("a message of the prompt asks to be trained; only the completion is");
      }
      for (Message& m : messages_of(*completion, "completion")) row.messages.push_back(std::move(m));
    } else if (prompt->is_string() && completion->is_string()) {
      row.prompt = prompt->get<std::string>();
      row.completion = completion->get<std::string>();
    } else {
      bad("prompt is of type {} and completion of type {}, wanted two strings or two lists of messages",
          prompt->type_name(), completion->type_name());
    }
    check_keys(object, {"prompt", "completion", "tools", "chat_template_kwargs"}, "",
               "prompt/completion rows");
  }

  std::vector<Message> messages_of(const json& list, std::string_view where) {
    if (!list.is_array()) bad("{} is of type {}, wanted a list", where, list.type_name());
    if (list.empty()) bad("{} is an empty list", where);
    std::vector<Message> messages;
    messages.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      messages.push_back(message_of(list[i], fmt::format("{}[{}]", where, i)));
    }
    return messages;
  }

  Message message_of(const json& object, const std::string& where) {
    if (!object.is_object()) bad("{} is of type {}, wanted an object", where, object.type_name());
    Message m;
    const json* role = member(object, "role");
    if (!role) bad("{} has no role", where);
    m.role = string_of(*role, where + ".role");
    if (m.role == "tool" || member(object, "tool_calls") || member(object, "tool_call_id")) {
      unsupported(fmt::format("{}: tool calls and tool messages are not supported yet", where));
    }
    if (!is_chat_role(m.role)) {
      bad("{}.role is {}, wanted system, developer, user, assistant or tool", where, quote(m.role));
    }
    const json* content = member(object, "content");
    if (!content) bad("{} has no content", where);
    m.content = content_of(*content, where + ".content");
    if (const json* name = member(object, "name")) string_of(*name, where + ".name");
    m.train = train_of(object, where);
    if (m.train && m.role != "assistant") {
      bad("{} is of the role {} and has a weight; only assistant messages are trained", where, m.role);
    }
    for (const auto& [key, value] : object.items()) {
      if (std::find(std::begin(kMessageKeys), std::end(kMessageKeys), key) == std::end(kMessageKeys)) {
        warn_once("message." + key, fmt::format("key {} of a message is not used", quote(key)));
      }
    }
    return m;
  }

  std::string content_of(const json& content, const std::string& where) const {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array())
      bad("{} is of type {}, wanted a string or a list of text parts", where, content.type_name());
    std::string text;
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string here = fmt::format("{}[{}]", where, i);
      const json& part = content[i];
      if (!part.is_object()) bad("{} is of type {}, wanted an object", here, part.type_name());
      const json* type = member(part, "type");
      if (!type) bad("{} has no type", here);
      const std::string type_name = string_of(*type, here + ".type");
      if (type_name != "text")
        unsupported(fmt::format("{} has the type {}, only text is read", here, quote(type_name)));
      const json* part_text = member(part, "text");
      if (!part_text) bad("{} has no text", here);
      text += string_of(*part_text, here + ".text");
    }
    return text;
  }

  std::optional<bool> train_of(const json& object, const std::string& where) const {
    std::optional<bool> by_weight, by_train;
    if (const json* weight = member(object, "weight")) {
      if (!weight->is_number()) bad("{}.weight is of type {}, wanted 0 or 1", where, weight->type_name());
      const double value = weight->get<double>();
      if (value != 0 && value != 1) bad("{}.weight is {}, wanted 0 or 1", where, weight->dump());
      by_weight = value == 1;
    }
    if (const json* train = member(object, "train")) {
      if (!train->is_boolean())
        bad("{}.train is of type {}, wanted true or false", where, train->type_name());
      by_train = train->get<bool>();
    }
    if (by_weight && by_train && *by_weight != *by_train) {
      bad("{} has weight {} and train {}, which contradict each other", where, *by_weight ? 1 : 0, *by_train);
    }
    return by_weight ? by_weight : by_train;
  }

  RowFile& file_;
  int64_t line_ = 0;
  int64_t first_line_ = 0;
  std::set<std::string> warned_;
};

}  // namespace

RowFile read_rows(const std::string& path) {
  RowFile file;
  file.name = path;
  Reader reader(file);
  read_jsonl(path, [&](size_t line, const json& object) { reader.row(line, object); });
  return file;
}

RowFile parse_rows(std::string_view text, std::string_view name) {
  RowFile file;
  file.name = name;
  Reader reader(file);
  parse_jsonl(text, name, [&](size_t line, const json& object) { reader.row(line, object); });
  return file;
}

}  // namespace tandem
