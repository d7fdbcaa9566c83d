// Anonymous memory: how much may be used, and buffers that count against it.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace tandem {

// Bytes this process could still take: the smaller of what the system has available and what its control
// group allows.
size_t available_memory_bytes();
// Anonymous bytes resident in this process now.  Source: RssAnon of /proc/self/status.
size_t anonymous_memory_bytes();
// "1.25 GiB", "320 MiB", "12.0 KiB".
std::string format_bytes(size_t bytes);
// Reads "512M", "2G", "1.5GiB", "1048576" (bytes).  Throws Usage, naming `what`.
size_t parse_bytes(const std::string& text, const char* what);

// Zeroed anonymous memory of its own mapping, 64-byte aligned (page aligned, in fact); move-only.
class Buffer {
 public:
  Buffer() = default;
  // Throws OutOfMemory, naming `what`.
  Buffer(size_t bytes, const char* what);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }
  float* f32() const { return reinterpret_cast<float*>(data_); }
  int* i32() const { return reinterpret_cast<int*>(data_); }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// For fault tests: the n-th Buffer allocation from now fails (0: the next); a negative n switches it off.
void fail_buffer_allocation_for_test(int n);

}  // namespace tandem
