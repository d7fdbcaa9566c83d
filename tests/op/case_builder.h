// Makes the inputs of op cases, the same in every mode.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/op/op_case.h"

namespace tandem {

// Random numbers that are a function of a key and a counter.
class KeyedRandom {
 public:
  explicit KeyedRandom(std::string_view key);
  uint64_t bits();
  double uniform();                      // in [0, 1)
  double uniform(double lo, double hi);  // in [lo, hi)
  int64_t below(int64_t n);              // in [0, n), n > 0

 private:
  uint64_t key_, counter_ = 0;
};

// Random blocks of a type without an encoder: finite, root mean square of a block 0.7 to 1.42 times `scale`,
// a window that a power of two hits too. `dst` holds n elements (whole blocks).  Throws Internal if the
// type's random blocks are never like that.
void random_blocks(KeyedRandom& random, DType type, double scale, void* dst, int64_t n);

// Which leaves of a case ask for a gradient.
enum class GradWanted {
  None,
  Inputs,  // what a trainer would
  AllF32,  // whatever could have one, to see that refusals refuse
};

// The builder of one case.  Owns the graph and the memory of its leaves.
class HarnessBuilder final : public CaseBuilder {
 public:
  // `key` names the case; the leaf `also` is marked too, whatever it is.
  explicit HarnessBuilder(std::string key, GradWanted wanted = GradWanted::None, std::string also = "");

  Graph& graph() override { return graph_; }
  Tensor input(const char* name, const Shape& ne, double lo, double hi) override;
  Tensor constant(const char* name, const Shape& ne, double lo, double hi) override;
  Tensor weight(const char* name, DType type, const Shape& ne, double scale) override;
  Tensor ids(const char* name, const Shape& ne, int64_t n, bool distinct) override;
  Tensor ids_of(const char* name, const Shape& ne, const std::vector<int32_t>& values) override;
  bool wants_gradients() const override { return wanted_ != GradWanted::None; }
  void adopt(Tensor leaf, const std::string& name) override;
  void keep(std::unique_ptr<Kept> owned) override { kept_.push_back(std::move(owned)); }

  const std::vector<Tensor>& inputs() const { return inputs_; }

 private:
  struct FreeAligned {
    void operator()(std::byte* p) const;
  };

  Tensor leaf(DType type, const Shape& ne, Home home, const char* name);
  Tensor uniform(const char* name, const Shape& ne, double lo, double hi);

  Graph graph_;
  std::string key_;
  GradWanted wanted_;
  std::string also_;
  std::vector<Tensor> inputs_;
  std::deque<std::string> names_;  // of leaves; addresses are stable
  std::vector<std::unique_ptr<std::byte[], FreeAligned>> memory_;
  std::vector<std::unique_ptr<Kept>> kept_;
};

}  // namespace tandem
