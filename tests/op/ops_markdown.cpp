#include <fmt/format.h>

#include <map>
#include <set>
#include <vector>

#include "exec/cpu/cpu_backend.h"
#include "graph/op_def.h"
#include "graph/planner.h"
#include "tests/op/case_builder.h"
#include "tests/op/harness.h"

namespace tandem {
namespace {

constexpr const char* kHead =
    "# Ops\n\n"
    "Made from the case lists of the ops by `tandem ops support --markdown`; a test compares.\n\n"
    "- **format**: type of the weight (or of the integers) that the op reads; activations are F32.\n"
    "- **base** to **avx512_bf16**: what runs there. `kernel`: one compiled for that level. `reference`: the "
    "slow\n"
    "  definition. `-`: nothing to run. A case that a kernel refuses stands under the table with its "
    "reason.\n"
    "- **gradient of**: the sources that can have one. `none`: no gradient passes through, and asking for "
    "one is an\n"
    "  error when the graph is built; so it is for every source that is not named, frozen weights and ids "
    "among them.\n"
    "- **in place of**: the sources whose memory the result may take when nobody needs them any more.\n\n";

// What the cases of an op say about one format.
struct Row {
  std::map<IsaLevel, std::set<std::string>> runs;
  std::set<size_t> differentiable;  // sources
  std::set<size_t> overwritten;     // sources
};

// The type that tells apart the rows of an op: weights are first sources.
DType format_of(const Node& node) { return node.src[0]->type; }

// The name a source has in the cases, where it is a leaf in one of them.
void learn_names(const Node& node, std::map<size_t, std::string>& names) {
  for (size_t s = 0; s < static_cast<size_t>(node.n_src); ++s) {
    const Node* src = node.src[s];
    if (src && src->op == Op::LEAF && *src->name) names.emplace(s, src->name);
  }
}

}  // namespace

std::string ops_markdown() {
  std::string table = "| op | format |", rule = "|---|---|", notes;
  for (IsaLevel level : compiled_isa_levels()) {
    table += fmt::format(" {} |", isa_name(level));
    rule += "---|";
  }
  table += " gradient of | in place of |\n" + rule + "---|---|\n";
  for (const OpList& list : op_lists()) {
    if (list.op == Op::LEAF) continue;
    const OpDef& def = op_def(list.op);
    std::map<DType, Row> rows;
    std::map<size_t, std::string> names;
    for (const OpCase& c : list.cases()) {
      HarnessBuilder builder(fmt::format("{}/{}", list.name, c.name));
      c.build(builder);
      for (int i = 0; i < builder.graph().size(); ++i) {
        const Node& node = builder.graph().node(i);
        if (node.op != list.op) continue;
        learn_names(node, names);
        Row& row = rows[format_of(node)];
        for (size_t s = 0; s < static_cast<size_t>(node.n_src); ++s) {
          if (node.src[s] && node.src[s]->type == DType::F32 && !(def.no_grad >> s & 1))
            row.differentiable.insert(s);
          if (fits_in_place(node, static_cast<int>(s))) row.overwritten.insert(s);
        }
        for (IsaLevel level : compiled_isa_levels()) {
          const char* refused = list.has_kernels ? CpuBackend::refusal(node, level) : nullptr;
          row.runs[level].insert(node.op == Op::VIEW            ? "-"
                                 : list.has_kernels && !refused ? "kernel"
                                                                : "reference");
          if (refused && level == IsaLevel::base)
            notes += fmt::format("- {}, case \"{}\": {}\n", list.name, c.name, refused);
        }
      }
    }
    for (const auto& [type, row] : rows) {
      const auto name_of_source = [&](size_t s) {
        return names.contains(s) ? names[s] : fmt::format("source {}", s);
      };
      std::vector<std::string> gradients, overwritten;
      for (size_t s : row.differentiable) gradients.push_back(name_of_source(s));
      for (size_t s : row.overwritten) overwritten.push_back(name_of_source(s));
      table += fmt::format("| {} | {} |", list.name, name_of(type));
      for (IsaLevel level : compiled_isa_levels())
        table += fmt::format(" {} |", fmt::join(row.runs.at(level), ", "));
      const bool none = def.backward == kNoGrad || gradients.empty();
      table += none ? " none |" : fmt::format(" {} |", fmt::join(gradients, ", "));
      table += overwritten.empty() ? " - |\n" : fmt::format(" {} |\n", fmt::join(overwritten, ", "));
    }
  }
  if (!notes.empty()) notes = "\nRefused by the kernels, so the reference runs:\n" + notes;
  return kHead + table + notes;
}

}  // namespace tandem
