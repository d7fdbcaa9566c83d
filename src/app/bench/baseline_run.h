// Runs the baseline kernel over a pool.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "app/bench/baseline.h"
#include "base/isa.h"
#include "base/thread_pool.h"
#include "graph/graph.h"

namespace tandem {

class BaselineBack {
 public:
  // The product of a MUL_MAT_ID_BACK node whose sources have their data, contiguous, a gradient row each
  // slot.  `max_threads` bounds the pools that will run it.  Throws: Unsupported for a type without kernels
  // at this level.
  BaselineBack(const Node& node, IsaLevel level, int max_threads);

  // Sorts the pairs and multiplies; a thread takes an expert at a time.
  void run(ThreadPool& pool);
  std::span<const float> result() const { return result_; }  // {K, k, T}

 private:
  void sort_pairs();

  const Node& node_;
  BaselineArgs args_{};
  BaselineExpert kernel_;
  std::vector<float> result_, tiles_;
  std::vector<int32_t> pairs_, offset_;
};

}  // namespace tandem
