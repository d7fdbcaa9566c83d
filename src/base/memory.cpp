#include "base/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"

namespace tandem {
namespace {

// The number after `key` in a text file of "key: number kB" lines, in bytes; 0 when there is none.
size_t read_kb(const char* path, const char* key) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"), std::fclose);
  if (!file) return 0;
  char line[256];
  unsigned long long kb = 0;
  const size_t n = std::strlen(key);
  while (std::fgets(line, sizeof line, file.get())) {
    if (std::strncmp(line, key, n) == 0 && std::sscanf(line + n, ": %llu", &kb) == 1) return kb * 1024;
  }
  return 0;
}

// A number alone in a file; SIZE_MAX for "max" or no file.
size_t read_number(const char* path) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"), std::fclose);
  unsigned long long value = 0;
  return file && std::fscanf(file.get(), "%llu", &value) == 1 ? value : SIZE_MAX;
}

std::atomic<int> fail_countdown{-1};

}  // namespace

size_t available_memory_bytes() {
  size_t available = read_kb("/proc/meminfo", "MemAvailable");
  if (available == 0) available = SIZE_MAX;
  const size_t limit = read_number("/sys/fs/cgroup/memory.max");
  if (limit != SIZE_MAX) {
    const size_t used = read_number("/sys/fs/cgroup/memory.current");
    available = std::min(available, used < limit ? limit - used : 0);
  }
  return available;
}

size_t anonymous_memory_bytes() { return read_kb("/proc/self/status", "RssAnon"); }

std::string format_bytes(size_t bytes) {
  const double kib = static_cast<double>(bytes) / 1024;
  if (kib < 1024) return fmt::format("{:.1f} KiB", kib);
  if (kib < 1024.0 * 1024) return fmt::format("{:.1f} MiB", kib / 1024);
  return fmt::format("{:.2f} GiB", kib / 1024 / 1024);
}

size_t parse_bytes(const std::string& text, const char* what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(end, static_cast<size_t>(text.data() + text.size() - end));
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (unit.ends_with("IB"))
    unit.resize(unit.size() - 2);
  else if (unit.ends_with("B"))
    unit.pop_back();
  constexpr std::string_view kUnits = "KMGT";
  double factor = 1;
  const bool known = unit.empty() || (unit.size() == 1 && kUnits.find(unit[0]) != std::string_view::npos);
  if (!unit.empty() && known) factor = std::pow(1024.0, static_cast<double>(kUnits.find(unit[0]) + 1));
  if (error != std::errc() || !known || !(value > 0) || !(value * factor < 1e18)) {
    fail(Code::Usage, "{} takes a size such as 512M, 8G or a number of bytes, not '{}'", what, text);
  }
  return static_cast<size_t>(value * factor);
}

Buffer::Buffer(size_t bytes, const char* what) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = MAP_FAILED;
  if (fail_countdown.load() < 0 || fail_countdown.fetch_sub(1) != 0) {
    p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (p == MAP_FAILED) fail(Code::OutOfMemory, "the system refused {} for {}", format_bytes(bytes), what);
  data_ = static_cast<std::byte*>(p);
}

Buffer::~Buffer() {
  if (data_) munmap(data_, bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void fail_buffer_allocation_for_test(int n) { fail_countdown = n; }

}  // namespace tandem
