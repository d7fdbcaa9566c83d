// Runs a fuzz target over its corpus without a fuzzer: every file, its prefixes, and fixed mutations of it.
// So a corpus is a regression test with any compiler.  Usage: fuzz_NAME CORPUS_DIRECTORY
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

// Per file: enough to reach the checks of every field of a small header, few enough for large corpora.
constexpr size_t kPrefixes = 64;
constexpr int kMutations = 256;

using Bytes = std::vector<uint8_t>;

// A heap copy of exactly this size, so that the address sanitizer sees any read past the end.
void run(const Bytes& bytes) { LLVMFuzzerTestOneInput(bytes.data(), bytes.size()); }

// splitmix64: the same mutations in every run.
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void replay(const Bytes& file) {
  run(file);
  const size_t step = std::max<size_t>(1, file.size() / kPrefixes);
  for (size_t n = 0; n < file.size(); n += step)
    run(Bytes(file.begin(), file.begin() + static_cast<ptrdiff_t>(n)));
  if (file.empty()) return;
  uint64_t state = file.size();
  for (int i = 0; i < kMutations; ++i) {
    Bytes mutant = file;
    // Half of them early in the file, where headers and counts are.
    const size_t reach = i % 2 ? mutant.size() : std::min<size_t>(mutant.size(), 256);
    const size_t at = next_random(state) % reach;
    const uint8_t edges[] = {0x00, 0xff, 0x7f, 0x80, static_cast<uint8_t>(next_random(state))};
    mutant[at] = edges[next_random(state) % std::size(edges)];
    run(mutant);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: {} CORPUS_DIRECTORY\n", argv[0]);
    return 2;
  }
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1], error))
    if (entry.is_regular_file()) paths.push_back(entry.path());
  if (paths.empty()) {
    fmt::print(stderr, "{}: no corpus files: a replay of nothing proves nothing\n", argv[1]);
    return 1;
  }
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    // Said first, so that a crash names its file.
    fmt::print("{}\n", path.filename().string());
    std::fflush(stdout);
    std::ifstream in(path, std::ios::binary);
    replay(Bytes(std::istreambuf_iterator<char>(in), {}));
  }
  fmt::print("{} files replayed\n", paths.size());
  return 0;
}
