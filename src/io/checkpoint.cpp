#include "io/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "io/content_hash.h"
#include "io/quote.h"

namespace tandem {
namespace {

constexpr std::string_view kMagic = "TANDEMCK";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeadBytes = 8 + 4 + 4 + 8;
constexpr size_t kMaxSections = 64, kMaxNameBytes = 64;
constexpr size_t kAlignment = 64;

size_t padding(uint64_t at) { return static_cast<size_t>((kAlignment - at % kAlignment) % kAlignment); }

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

template <class T>
void append_number(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out += static_cast<char>(static_cast<unsigned char>(static_cast<uint64_t>(value) >> (8 * i)));
}

// Everything before the contents.
std::string head_of(std::span<const CheckpointSection> sections) {
  TANDEM_CHECK(sections.size() <= kMaxSections);
  std::string table;
  for (const CheckpointSection& s : sections) {
    TANDEM_CHECK(valid_name(s.name));
    for (const CheckpointSection* before = sections.data(); before != &s; ++before)
      TANDEM_CHECK(before->name != s.name);
    append_number(table, static_cast<uint32_t>(s.name.size()));
    table += s.name;
    append_number(table, uint64_t{s.bytes.size()});
  }
  uint64_t n_bytes = kHeadBytes + table.size();
  for (const CheckpointSection& s : sections) n_bytes += padding(n_bytes) + s.bytes.size();
  std::string head(kMagic);
  append_number(head, kVersion);
  append_number(head, static_cast<uint32_t>(sections.size()));
  append_number(head, n_bytes + ContentHash::kBytes);
  return head + table;
}

// Takes the head of a file apart.
class Reader {
 public:
  Reader(const std::string& where, std::span<const std::byte> bytes)
      : where_(where), n_all_(bytes.size()), rest_(bytes) {}

  template <class T>
  T number(const char* what) {
    const std::span<const std::byte> bytes = take(sizeof(T), what);
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
    return static_cast<T>(value);
  }

  std::span<const std::byte> take(uint64_t n_bytes, const char* what) {
    if (n_bytes > rest_.size()) {
      fail(Code::BadData, "{}: this checkpoint is damaged: {} needs {} bytes, {} are left", where_, what,
           n_bytes, rest_.size());
    }
    const std::span<const std::byte> taken = rest_.first(static_cast<size_t>(n_bytes));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

  size_t n_left() const { return rest_.size(); }
  size_t n_taken() const { return n_all_ - rest_.size(); }

 private:
  const std::string& where_;
  size_t n_all_;
  std::span<const std::byte> rest_;
};

}  // namespace

uint64_t checkpoint_file_bytes(std::span<const CheckpointSection> sections) {
  uint64_t n_bytes = head_of(sections).size();
  for (const CheckpointSection& s : sections) n_bytes += padding(n_bytes) + s.bytes.size();
  return n_bytes + ContentHash::kBytes;
}

void write_checkpoint_file(const std::string& path, std::span<const CheckpointSection> sections) {
  const std::string head = head_of(sections);
  write_file_atomic(path, [&](const ByteSink& sink) {
    ContentHash hash;
    uint64_t n_put = 0;
    const auto put = [&](std::span<const std::byte> bytes) {
      hash.add(bytes);
      sink(bytes);
      n_put += bytes.size();
    };
    put(std::as_bytes(std::span(head)));
    constexpr std::byte kZeros[kAlignment] = {};
    for (const CheckpointSection& s : sections) {
      put(std::span(kZeros).first(padding(n_put)));
      put(s.bytes);
    }
    sink(hash.digest());
  });
}

std::vector<CheckpointSection> parse_checkpoint(std::span<const std::byte> bytes, const std::string& where) {
  const auto damaged = [&](const std::string& what) {
    fail(Code::BadData, "{}: this checkpoint is damaged: {}", where, what);
  };
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    fail(Code::BadData, "{}: this is no checkpoint, or its beginning is damaged", where);
  // What stands before the hash; a file too short for that has nothing there.
  const size_t n_sealed = bytes.size() - std::min(bytes.size(), ContentHash::kBytes);
  Reader in(where, bytes.first(n_sealed));
  in.take(kMagic.size(), "the mark");
  const auto version = in.number<uint32_t>("the version");
  const auto n_sections = in.number<uint32_t>("the number of sections");
  const auto n_bytes = in.number<uint64_t>("the length");
  if (n_bytes != bytes.size())
    damaged(fmt::format("it should have {} bytes and has {}", n_bytes, bytes.size()));
  ContentHash hash;
  hash.add(bytes.first(n_sealed));
  const ContentHash::Digest digest = hash.digest();
  if (std::memcmp(digest.data(), bytes.data() + n_sealed, ContentHash::kBytes) != 0)
    damaged("its contents do not have the hash that was written with them");
  // From here on the bytes are those that were written, which is no reason to believe them.
  if (version != kVersion) {
    fail(Code::Unsupported, "{}: this checkpoint has layout {}, this program reads layout {}", where, version,
         kVersion);
  }
  if (n_sections > kMaxSections)
    damaged(fmt::format("{} sections, at most {} are allowed", n_sections, kMaxSections));

  std::vector<CheckpointSection> sections;
  std::vector<uint64_t> sizes;
  for (uint32_t i = 0; i < n_sections; ++i) {
    const std::span<const std::byte> raw = in.take(in.number<uint32_t>("a name's length"), "a name");
    const std::string name(reinterpret_cast<const char*>(raw.data()), raw.size());
    if (!valid_name(name)) damaged(fmt::format("a section is called {}", quote(name)));
    for (const CheckpointSection& s : sections) {
      if (s.name == name) damaged(fmt::format("section {} is there twice", name));
    }
    sections.push_back({name, {}});
    sizes.push_back(in.number<uint64_t>("a section's length"));
  }
  for (size_t i = 0; i < sections.size(); ++i) {
    for (const std::byte zero : in.take(padding(in.n_taken()), "the space before a section")) {
      if (zero != std::byte{0}) damaged("there is something between the sections");
    }
    sections[i].bytes = in.take(sizes[i], sections[i].name.c_str());
  }
  if (in.n_left() > 0) damaged(fmt::format("{} bytes belong to no section", in.n_left()));
  return sections;
}

CheckpointFile CheckpointFile::open(const std::string& path) {
  CheckpointFile file(MappedFile::open(path));
  file.sections_ = parse_checkpoint(file.file_.bytes(), path);
  return file;
}

std::span<const std::byte> CheckpointFile::section(std::string_view name) const {
  for (const CheckpointSection& s : sections_) {
    if (s.name == name) return s.bytes;
  }
  fail(Code::BadData, "{}: this checkpoint has no section {}", path(), name);
}

}  // namespace tandem
