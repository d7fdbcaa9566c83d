// Split models: shards of one model, found by their names and read as one.  Source: gguf.md 9.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "io/gguf.h"
#include "io/quote.h"

namespace tandem {
namespace {

constexpr size_t kDigits = 5;
constexpr uint64_t kMaxShards = 99999;  // what the five digits of a name can say

// PREFIX-NNNNN-of-MMMMM.gguf, a path.
struct ShardName {
  std::string prefix;
  uint64_t number;  // from 1
  uint64_t count;

  std::string of(uint64_t n) const { return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, n, count); }
};

// Takes `end` off the end of the text, if it is there.
bool take_end(std::string_view& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.remove_suffix(end.size());
  return true;
}

std::optional<uint64_t> take_last_digits(std::string_view& text) {
  if (text.size() < kDigits) return std::nullopt;
  uint64_t number = 0;
  for (const char c : text.substr(text.size() - kDigits)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = 10 * number + static_cast<uint64_t>(c - '0');
  }
  text.remove_suffix(kDigits);
  return number;
}

std::optional<ShardName> parse_shard_name(std::string_view path) {
  if (!take_end(path, ".gguf")) return std::nullopt;
  const std::optional<uint64_t> count = take_last_digits(path);
  if (!count || !take_end(path, "-of-")) return std::nullopt;
  const std::optional<uint64_t> number = take_last_digits(path);
  if (!number || !take_end(path, "-")) return std::nullopt;
  return ShardName{.prefix = std::string(path), .number = *number, .count = *count};
}

GgufFile open_sibling(const std::string& path, uint64_t number, const ShardName& first,
                      GgufFile (*open)(const std::string&)) {
  try {
    return open(path);
  } catch (const Error& e) {
    if (e.code() != Code::Io) throw;
    fail(Code::Io, "{}; it is shard {} of {}, and all of them must be beside the first, {}", e.what(), number,
         first.count, first.of(1));
  }
}

// Shards left over from another split would show that the set is not what it seems.
void refuse_surplus(const ShardName& name) {
  for (const uint64_t n : {uint64_t{0}, name.count + 1}) {
    if (n > kMaxShards) continue;
    std::error_code ignored;
    if (std::filesystem::exists(name.of(n), ignored)) {
      fail(Code::BadData, "{}: there is no shard {} of {}; remove the file, or fetch the model anew",
           name.of(n), n, name.count);
    }
  }
}

bool same(const GgufValue& a, const GgufValue& b) {
  return a.type == b.type && a.is_array == b.is_array && a.count == b.count &&
         std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
}

}  // namespace

GgufFile GgufFile::open(const std::string& path) {
  const auto open_one = [](const std::string& one) {
    MappedFile map = MappedFile::open(one);
    GgufFile file = read_one(map.bytes(), one);
    file.maps_.push_back(std::move(map));
    return file;
  };
  GgufFile file = open_one(path);
  const std::optional<ShardName> name = parse_shard_name(path);
  const uint64_t n_shards = file.get_u64_or("split.count", 1);
  if (n_shards <= 1) return file;

  const uint64_t number = file.get_u64("split.no") + 1;
  if (!name) {
    fail(Code::BadData,
         "{}: shard {} of {} of a split model must have a name that ends in -{:05}-of-{:05}.gguf, by which "
         "its siblings are found",
         path, number, n_shards, number, n_shards);
  }
  if (name->number != number || name->count != n_shards) {
    fail(Code::BadData, "{}: by its name this is shard {} of {}, by its keys {} of {}; was it renamed?", path,
         name->number, name->count, number, n_shards);
  }
  if (number != 1) {
    fail(Code::Usage, "{}: this is shard {} of {} of a split model; give the first one, {}", path, number,
         n_shards, name->of(1));
  }
  file.begin_split();
  for (uint64_t n = 2; n <= n_shards; ++n) file.append_shard(open_sibling(name->of(n), n, *name, open_one));
  file.finish_split();
  refuse_surplus(*name);
  return file;
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string where) {
  const GgufBytes one{.bytes = bytes, .where = std::move(where)};
  return parse(std::span(&one, 1));
}

GgufFile GgufFile::parse(std::span<const GgufBytes> shards) {
  TANDEM_CHECK(!shards.empty());
  GgufFile file = read_one(shards[0].bytes, shards[0].where);
  const uint64_t n_shards = file.begin_split();
  if (n_shards != shards.size()) {
    fail(Code::BadData, "{}: the model has {} shards, {} are given", file.path(), n_shards, shards.size());
  }
  if (n_shards == 1) return file;
  for (const GgufBytes& next : shards.subspan(1)) file.append_shard(read_one(next.bytes, next.where));
  file.finish_split();
  return file;
}

uint64_t GgufFile::begin_split() const {
  const uint64_t n_shards = get_u64_or("split.count", 1);
  if (n_shards <= 1) return 1;
  if (n_shards > kMaxShards) {
    fail(Code::BadData, "{}: split.count is {}, names have room for {}", path(), n_shards, kMaxShards);
  }
  if (const uint64_t no = get_u64("split.no"); no != 0) {
    fail(Code::Usage, "{}: this is shard {} of {} of a split model; give the first one", path(), no + 1,
         n_shards);
  }
  get_u64("split.tensors.count");
  return n_shards;
}

void GgufFile::append_shard(GgufFile&& next) {
  const std::string& where = next.path();
  for (const char* key : {"split.count", "split.tensors.count"}) {
    if (next.get_u64(key) != get_u64(key)) {
      fail(Code::BadData, "{}: {} is {}, in the first shard, {}, it is {}; the shards do not belong together",
           where, key, next.get_u64(key), path(), get_u64(key));
    }
  }
  if (const uint64_t no = next.get_u64("split.no"); no != shards_.size()) {
    fail(Code::BadData, "{}: split.no is {}, wanted {}; was the file renamed?", where, no, shards_.size());
  }
  // The model's keys are those of the first shard.  What another one says must not be lost.
  for (const GgufEntry& entry : next.entries_) {
    if (entry.key.starts_with("split.")) continue;
    const GgufValue* first = value(entry.key);
    if (first == nullptr) {
      fail(Code::BadData, "{}: key '{}' is not in the first shard, {}, whose keys are the model's", where,
           entry.key, path());
    }
    if (!same(entry.value, *first)) {
      fail(Code::BadData,
           "{}: key '{}' is {}, in the first shard, {}, it is {}; the shards do not belong together", where,
           entry.key, to_text(entry.value), path(), to_text(*first));
    }
  }
  for (GgufTensor& tensor : next.tensors_) {
    tensor.shard = static_cast<uint32_t>(shards_.size());
    tensors_.push_back(std::move(tensor));
  }
  shards_.push_back(std::move(next.shards_.front()));
  for (MappedFile& map : next.maps_) maps_.push_back(std::move(map));
}

void GgufFile::finish_split() {
  index_tensors();
  if (const uint64_t wanted = get_u64("split.tensors.count"); wanted != tensors_.size()) {
    fail(Code::BadData, "{}: split.tensors.count is {}, but the {} shards hold {} tensors", path(), wanted,
         shards_.size(), tensors_.size());
  }
}

uint64_t GgufFile::file_bytes() const {
  uint64_t bytes = 0;
  for (const GgufShard& shard : shards_) bytes += shard.file_bytes;
  return bytes;
}

void GgufFile::check_size() const {
  for (const MappedFile& map : maps_) map.check_size();
}

}  // namespace tandem
