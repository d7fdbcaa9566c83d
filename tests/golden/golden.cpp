#include "tests/golden/golden.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/ref/ref_exec.h"
#include "tests/op/metric.h"
#include "tests/op/run_case.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr double kDigits = 1e-8;     // nine digits, the last one rounded
constexpr double kF32Params = 2e-7;  // a parameter off by half an f32 epsilon, in an exponent or a root
constexpr double kKernels = 1e-5;    // gradients.md 1.7

std::map<std::string, GoldenTensor> read_tensors(const Json& object) {
  std::map<std::string, GoldenTensor> tensors;
  for (const auto& [name, json] : object.items()) {
    GoldenTensor t;
    const std::vector<int64_t> ne = json.at("ne");
    for (size_t i = 0; i < ne.size(); ++i) t.ne.ne.at(i) = ne[i];
    if (json.at("type") == "i32") {
      t.ids = json.at("data").get<std::vector<int32_t>>();
    } else {
      t.numbers = json.at("data").get<std::vector<double>>();
    }
    tensors.emplace(name, std::move(t));
  }
  return tensors;
}

void read_params(const Json& json, const std::string& path, GoldenCase& out) {
  if (json.is_object()) {
    for (const auto& [name, value] : json.items())
      read_params(value, path.empty() ? name : path + "/" + name, out);
  } else if (json.is_array()) {
    out.numbers[path] = json.get<std::vector<double>>();
  } else if (json.is_string()) {
    out.texts[path] = json.get<std::string>();
  } else if (json.is_boolean()) {
    out.numbers[path] = {json.get<bool>() ? 1. : 0.};
  } else if (json.is_number()) {
    out.numbers[path] = {json.get<double>()};
  }
}

std::vector<double> as_numbers(const std::vector<std::byte>& bytes) {
  std::vector<float> f(bytes.size() / sizeof(float));
  std::memcpy(f.data(), bytes.data(), bytes.size());
  return {f.begin(), f.end()};
}

std::vector<int32_t> as_ids(const std::vector<std::byte>& bytes) {
  std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

}  // namespace

GoldenCase load_golden(const std::string& file, const std::string& name) {
  const std::string path = fmt::format("{}/tests/golden/vectors/{}", TANDEM_SOURCE_DIR, file);
  std::ifstream stream(path);
  if (!stream) fail(Code::BadData, "{} cannot be read", path);
  const Json json = Json::parse(stream);
  for (const Json& c : json.at("cases")) {
    if (c.at("name") != name) continue;
    GoldenCase result;
    result.name = name;
    result.inputs = read_tensors(c.at("inputs"));
    result.outputs = read_tensors(c.at("outputs"));
    read_params(c.at("params"), "", result);
    return result;
  }
  fail(Code::BadData, "{} has no case {}", path, name);
}

GoldenGraph::GoldenGraph(const std::string& file, const std::string& case_name)
    : case_(load_golden(file, case_name)) {}

float GoldenGraph::number(const std::string& path) {
  const double value = case_.numbers.at(path).at(0);
  const float rounded = static_cast<float>(value);
  exact_params_ = exact_params_ && static_cast<double>(rounded) == value;
  return rounded;
}

Tensor GoldenGraph::leaf(const Shape& ne, const std::vector<float>& values, const std::string& name) {
  TANDEM_CHECK(static_cast<int64_t>(values.size()) == ne.elements());
  names_.push_back(name);
  floats_.push_back(values);
  return graph_.leaf(DType::F32, ne, Home::Persistent, floats_.back().data(), names_.back().c_str());
}

Tensor GoldenGraph::fixed(const std::string& name) {
  const GoldenTensor& t = case_.inputs.at(name);
  if (!t.ids.empty()) return ids(t.ne, t.ids);
  return leaf(t.ne, std::vector<float>(t.numbers.begin(), t.numbers.end()), name);
}

Tensor GoldenGraph::trained(const std::string& name, const std::string& gradient) {
  Tensor t = fixed(name);
  graph_.want_grad(t);
  TANDEM_CHECK(wanted_.emplace(gradient, t).second);
  return t;
}

Tensor GoldenGraph::probe(Tensor t, const std::string& gradient) {
  Tensor zero = leaf(t.shape(), std::vector<float>(static_cast<size_t>(t.node->elements())), gradient);
  graph_.want_grad(zero);
  TANDEM_CHECK(wanted_.emplace(gradient, zero).second);
  return add(t, zero);
}

Tensor GoldenGraph::constant(const Shape& ne, const std::vector<float>& values) {
  return leaf(ne, values, "constant");
}

Tensor GoldenGraph::ids(const Shape& ne, const std::vector<int32_t>& values) {
  TANDEM_CHECK(static_cast<int64_t>(values.size()) == ne.elements());
  ints_.push_back(values);
  return graph_.leaf(DType::I32, ne, Home::Persistent, ints_.back().data(), "ids");
}

void GoldenGraph::expect(const std::string& name, Tensor t) {
  TANDEM_CHECK(outputs_.emplace(name, t).second);
}

void GoldenGraph::leave_out(const std::string& name, const std::string& because) {
  TANDEM_CHECK(!because.empty());
  left_out_.insert(name);
}

std::string GoldenGraph::check() {
  std::vector<Tensor> leaves;
  for (const auto& [name, leaf] : wanted_) leaves.push_back(leaf);
  const std::vector<Tensor> grads = backward(graph_, seeds_, leaves);
  size_t k = 0;
  for (const auto& [name, leaf] : wanted_) {
    if (!grads[k]) return name + ": no gradient reaches the tensor";
    expect(name, grads[k++]);
  }

  Named want;
  std::map<std::string, std::vector<int32_t>> want_ids;
  for (const auto& [name, t] : case_.outputs) {
    if (left_out_.contains(name)) continue;
    if (t.ids.empty()) {
      want[name] = t.numbers;
    } else {
      want_ids[name] = t.ids;
    }
  }
  // Compares one run; `numbers` and `ids_of` read a tensor from it.
  const auto compare_run = [&](auto numbers, auto ids_of, double tolerance) -> std::string {
    Named got;
    size_t n_ids = 0;
    for (const auto& [name, t] : outputs_) {
      if (t.type() != DType::I32) {
        got[name] = numbers(t);
        continue;
      }
      if (!want_ids.contains(name)) return name + ": the case has no such ids";
      if (const Verdict v = compare_ids(ids_of(t), want_ids.at(name)); !v.pass)
        return name + ": " + v.message;
      ++n_ids;
    }
    if (n_ids != want_ids.size()) return "not all ids of the case are computed";
    const Verdict v = compare_sets(got, want, tolerance);
    return v.pass ? "" : v.message;
  };

  RefExec<double> exec(graph_);
  exec.poison = true;
  exec.run();
  std::string wrong = compare_run(
      [&](Tensor t) {
        const std::span<const double> v = exec.get(t);
        return std::vector<double>(v.begin(), v.end());
      },
      [&](Tensor t) { return exec.get_ids(t); }, exact_params_ ? kDigits : kF32Params);
  if (!wrong.empty()) return "f64 reference: " + wrong;

  for (const IsaLevel level : compiled_isa_levels()) {
    if (!isa_supported(level)) continue;
    const CaseRun run = run_on_cpu(graph_, {.level = level, .n_threads = 2, .share = false});
    const auto bytes = [&](Tensor t) {
      return t.node->op == Op::LEAF ? gather_bytes(*t.node) : run.values[static_cast<size_t>(t.node->index)];
    };
    wrong = run.complaint.empty() ? compare_run([&](Tensor t) { return as_numbers(bytes(t)); },
                                                [&](Tensor t) { return as_ids(bytes(t)); }, kKernels)
                                  : run.complaint;
    if (!wrong.empty()) return fmt::format("{} kernels: {}", isa_name(level), wrong);
  }
  return "";
}

}  // namespace tandem
