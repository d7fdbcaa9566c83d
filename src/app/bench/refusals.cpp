#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/bench/modes.h"
#include "app/output.h"
#include "graph/op_def.h"

namespace tandem {
namespace {

// "MUL_MAT {2048, 512} Q4_K {2048, 768} F32".
std::string node_text(const Node& n) {
  std::string text = op_name(n.op);
  for (size_t i = 0; i < static_cast<size_t>(n.n_src); ++i) {
    if (const Node* s = n.src[i]) text += fmt::format(" {} {}", name_of(s->type), to_string(s->ne));
  }
  return text;
}

}  // namespace

void Refusals::look_at(const Graph& graph, const std::string& where) {
  for (int i = 0; i < graph.size(); ++i) {
    const Node& n = graph.node(i);
    if (n.op == Op::LEAF || n.op == Op::VIEW || n.dropped || n.elements() == 0) continue;
    ++n_nodes_;
    std::string reasons;
    const std::string taken_by = backend_.explain(n, &reasons);
    if (taken_by == isa_name(backend_.level())) continue;
    if (reasons.empty()) reasons = "no kernel is written for this op";
    const std::string node = node_text(n);
    const auto it = std::find_if(refused_.begin(), refused_.end(),
                                 [&](const Refused& r) { return r.node == node && r.reasons == reasons; });
    if (it == refused_.end()) {
      refused_.push_back({node, taken_by, reasons, where, 1});
    } else {
      ++it->n;
    }
  }
}

void Refusals::print(bool lines_of_json) const {
  int64_t n_refused = 0;
  for (const Refused& r : refused_) {
    n_refused += r.n;
    if (lines_of_json) {
      print_json({{"type", "refusal"},
                  {"node", r.node},
                  {"taken_by", r.taken_by},
                  {"reasons", r.reasons},
                  {"where", r.where},
                  {"nodes", r.n}});
    } else {
      tandem::print("{}\n  in {}{}, taken by {}\n  {}\n", r.node, r.where,
                    r.n > 1 ? fmt::format(" and {} more", r.n - 1) : "",
                    r.taken_by == "reference" ? "the reference" : r.taken_by, r.reasons);
    }
  }
  if (lines_of_json) {
    print_json({{"type", "refusals"},
                {"isa", isa_name(backend_.level())},
                {"nodes", n_nodes_},
                {"refused", n_refused}});
  } else {
    tandem::print("{} of {} nodes fall back; the others are taken by the kernels of {}\n", n_refused,
                  n_nodes_, isa_name(backend_.level()));
  }
}

}  // namespace tandem
