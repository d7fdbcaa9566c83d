#include "tests/op/case_builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

namespace tandem {
namespace {

constexpr std::align_val_t kLeafAlign{64};  // bytes; as anonymous memory of the engine has
// Around every leaf, all ones (a NaN, the id -1): more than a kernel's widest load, so that what it reads
// outside of its sources shows in the result.
constexpr size_t kLeafGuardBytes = 256;

// FNV-1a, 64 bits.
uint64_t hash_of(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

// Random blocks are found by trying, so a large weight is drawn from some of them.
void random_weight(KeyedRandom& random, const TypeInfo& info, double scale, std::byte* dst, int64_t n) {
  constexpr int64_t kDistinct = 101;  // prime: no multiple of it is a row or a tile
  const int64_t n_blocks = n / info.block_elements, distinct = std::min(n_blocks, kDistinct);
  random_blocks(random, info.type, scale, dst, distinct * info.block_elements);
  for (int64_t b = distinct; b < n_blocks; ++b) {
    std::memcpy(dst + b * info.block_bytes, dst + random.below(distinct) * info.block_bytes,
                static_cast<size_t>(info.block_bytes));
  }
}

}  // namespace

KeyedRandom::KeyedRandom(std::string_view key) : key_(hash_of(key)) {}

// SplitMix64 (Steele, Lea, Flood 2014): a bijective mix of an arithmetic sequence.
uint64_t KeyedRandom::bits() {
  uint64_t z = key_ + ++counter_ * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

double KeyedRandom::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
double KeyedRandom::uniform(double lo, double hi) { return lo + (hi - lo) * uniform(); }
int64_t KeyedRandom::below(int64_t n) {
  TANDEM_CHECK(n > 0);
  return static_cast<int64_t>(bits() % static_cast<uint64_t>(n));
}

void random_blocks(KeyedRandom& random, DType type, double scale, void* dst, int64_t n) {
  const TypeInfo& info = type_info(type);
  TANDEM_CHECK(info.codec && n % info.block_elements == 0);
  constexpr int kTries = 100000;  // with one or two scales of 5 to 8 exponent bits, some hundreds are usual
  std::vector<float> decoded(static_cast<size_t>(info.block_elements));
  auto* block = static_cast<unsigned char*>(dst);
  for (int64_t b = 0; b < n / info.block_elements; ++b, block += info.block_bytes) {
    for (int tries = 0;; ++tries) {
      if (tries == kTries) fail(Code::Internal, "{}: no random block has values near {}", info.name, scale);
      for (int i = 0; i < info.block_bytes; i += 8) {
        const uint64_t bits = random.bits();
        std::memcpy(block + i, &bits, static_cast<size_t>(std::min(8, info.block_bytes - i)));
      }
      info.codec->decode(block, decoded.data(), info.block_elements);
      double sum = 0;
      for (float x : decoded) sum += static_cast<double>(x) * x;
      const double rms = std::sqrt(sum / info.block_elements);
      if (rms >= scale * 0.7 && rms <= scale * 1.42) break;  // false for infinities and NaN
    }
  }
}

void HarnessBuilder::FreeAligned::operator()(std::byte* p) const { ::operator delete[](p, kLeafAlign); }

HarnessBuilder::HarnessBuilder(std::string key, GradWanted wanted, std::string also)
    : key_(std::move(key)), wanted_(wanted), also_(std::move(also)) {}

Tensor HarnessBuilder::leaf(DType type, const Shape& ne, Home home, const char* name) {
  const size_t bytes = static_cast<size_t>(row_bytes(type, ne[0]) * ne.rows());
  memory_.emplace_back(static_cast<std::byte*>(::operator new[](bytes + 2 * kLeafGuardBytes, kLeafAlign)));
  std::memset(memory_.back().get(), 0xff, bytes + 2 * kLeafGuardBytes);
  names_.emplace_back(name);
  Tensor t = graph_.leaf(type, ne, home, memory_.back().get() + kLeafGuardBytes, names_.back().c_str());
  if ((wanted_ == GradWanted::AllF32 && type == DType::F32) || names_.back() == also_) graph_.want_grad(t);
  return t;
}

Tensor HarnessBuilder::uniform(const char* name, const Shape& ne, double lo, double hi) {
  Tensor t = leaf(DType::F32, ne, Home::Persistent, name);
  KeyedRandom random(key_ + "/" + name);
  auto* x = static_cast<float*>(t.node->data);
  for (int64_t i = 0; i < ne.elements(); ++i) x[i] = static_cast<float>(random.uniform(lo, hi));
  return t;
}

Tensor HarnessBuilder::input(const char* name, const Shape& ne, double lo, double hi) {
  Tensor t = uniform(name, ne, lo, hi);
  if (wanted_ == GradWanted::Inputs) graph_.want_grad(t);
  inputs_.push_back(t);
  return t;
}

void HarnessBuilder::adopt(Tensor leaf, const std::string& name) {
  TANDEM_CHECK(leaf && leaf.graph == &graph_ && leaf.node->op == Op::LEAF && leaf.type() == DType::F32);
  names_.push_back(name);
  leaf.node->name = names_.back().c_str();
  inputs_.push_back(leaf);
}

Tensor HarnessBuilder::constant(const char* name, const Shape& ne, double lo, double hi) {
  return uniform(name, ne, lo, hi);
}

Tensor HarnessBuilder::weight(const char* name, DType type, const Shape& ne, double scale) {
  const TypeInfo& info = type_info(type);
  if (!info.codec)
    fail(Code::Internal, "case {}: weight {} of type {} cannot be decoded", key_, name, info.name);
  Tensor t = leaf(type, ne, Home::Mapped, name);
  KeyedRandom random(key_ + "/" + name);
  if (!info.codec->encode) {
    random_weight(random, info, scale, static_cast<std::byte*>(t.node->data), ne.elements());
    return t;
  }
  const double half_width = scale * std::sqrt(3.0);  // of a uniform distribution with this root mean square
  std::vector<float> values(static_cast<size_t>(ne.elements()));
  for (float& x : values) x = static_cast<float>(random.uniform(-half_width, half_width));
  info.codec->encode(values.data(), t.node->data, ne.elements());
  return t;
}

Tensor HarnessBuilder::ids(const char* name, const Shape& ne, int64_t n, bool distinct) {
  TANDEM_CHECK(!distinct || ne[0] <= n);
  Tensor t = leaf(DType::I32, ne, Home::Persistent, name);
  KeyedRandom random(key_ + "/" + name);
  auto* id = static_cast<int32_t*>(t.node->data);
  std::vector<int32_t> pool(static_cast<size_t>(distinct ? n : 0));
  for (int64_t r = 0; r < ne.rows(); ++r, id += ne[0]) {
    for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<int32_t>(i);
    for (int64_t i = 0; i < ne[0]; ++i) {
      if (!distinct) {
        id[i] = static_cast<int32_t>(random.below(n));
      } else {
        std::swap(pool[static_cast<size_t>(i)], pool[static_cast<size_t>(i + random.below(n - i))]);
        id[i] = pool[static_cast<size_t>(i)];
      }
    }
  }
  return t;
}

Tensor HarnessBuilder::ids_of(const char* name, const Shape& ne, const std::vector<int32_t>& values) {
  TANDEM_CHECK(static_cast<int64_t>(values.size()) == ne.elements());
  Tensor t = leaf(DType::I32, ne, Home::Persistent, name);
  std::copy(values.begin(), values.end(), static_cast<int32_t*>(t.node->data));
  return t;
}

}  // namespace tandem
