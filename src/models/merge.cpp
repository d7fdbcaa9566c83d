#include "models/merge.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>

#include "io/gguf_writer.h"
#include "models/offences.h"

namespace tandem {
namespace {

constexpr int64_t kUnitElements = 1 << 15;  // of one unit of work, at least a row
constexpr int64_t kUnitsAtOnce = 64;

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

// One weight and what is added to it.
class Merger {
 public:
  Merger(const MergedWeight& merged, std::span<const AdapterSet* const> adapters)
      : w_(*merged.weight), type_(merged.type) {
    for (const AdapterSet* set : adapters) {
      if (const AdapterPair* p = set->find(w_)) deltas_.push_back({set, p});
    }
  }

  // All rows in order, encoded.
  void produce(ThreadPool& pool, const ByteSink& sink) const {
    const int64_t n_rows = w_.ne.elements() / w_.ne[0], unit = std::max<int64_t>(1, kUnitElements / w_.ne[0]);
    const int64_t at_once = unit * kUnitsAtOnce;
    std::vector<float> numbers(static_cast<size_t>(std::min(n_rows, at_once) * w_.ne[0]));
    std::vector<std::byte> blocks(
        static_cast<size_t>(std::min(n_rows, at_once) * row_bytes(type_, w_.ne[0])));
    for (int64_t begin = 0; begin < n_rows; begin += at_once) {
      Work work{*this, begin, std::min(n_rows, begin + at_once), unit, numbers, blocks, {}};
      const Task task{Work::run, &work, (work.end - begin + unit - 1) / unit};
      pool.run({&task, 1}, Priority::Training);
      if (work.overflowed) {
        fail(Code::NonFinite, "{}: a merged value is beyond what {} holds; --outtype f32 may hold it",
             w_.name, name_of(type_));
      }
      sink(std::span(blocks).first(static_cast<size_t>((work.end - begin) * row_bytes(type_, w_.ne[0]))));
    }
  }

 private:
  struct Delta {
    const AdapterSet* set;
    const AdapterPair* pair;
  };
  struct Work {
    const Merger& merger;
    int64_t begin, end, unit;  // rows
    std::vector<float>& numbers;
    std::vector<std::byte>& blocks;
    mutable std::atomic<bool> overflowed;

    static void run(const void* arg, int64_t i_unit, int) noexcept {
      const auto& w = *static_cast<const Work*>(arg);
      const int64_t first = w.begin + i_unit * w.unit, last = std::min(first + w.unit, w.end);
      for (int64_t row = first; row < last; ++row) {
        if (!w.merger.merge_row(
                row, w.numbers.data() + (row - w.begin) * w.merger.w_.ne[0],
                w.blocks.data() + (row - w.begin) * row_bytes(w.merger.type_, w.merger.w_.ne[0])))
          w.overflowed = true;
      }
    }
  };

  // Row o of expert e, as encoded; false if it does not decode to finite numbers.
  bool merge_row(int64_t row, float* x, std::byte* blocks) const noexcept {
    const int64_t n = w_.ne[0], e = row / w_.ne[1], o = row % w_.ne[1];
    type_info(w_.type).codec->decode(static_cast<const std::byte*>(w_.data) + row * row_bytes(w_.type, n), x,
                                     n);
    for (const Delta& d : deltas_) {
      const int64_t r = d.pair->rank;
      const float *a = d.set->a(*d.pair) + e * n * r, *b = d.set->b(*d.pair) + (e * w_.ne[1] + o) * r;
      for (int64_t k = 0; k < r; ++k) {
        const float factor = d.pair->scale * b[k];
        if (factor == 0) continue;
        for (int64_t i = 0; i < n; ++i) x[i] += factor * a[k * n + i];
      }
    }
    type_info(type_).codec->encode(x, blocks, n);
    type_info(type_).codec->decode(blocks, x, n);
    return std::all_of(x, x + n, [](float v) { return std::isfinite(v); });
  }

  const Weight& w_;
  DType type_;
  std::vector<Delta> deltas_;
};

bool is_split_key(std::string_view key) { return key.starts_with("split."); }

void require_same(bool same, const std::string& path, std::string_view what) {
  if (!same) fail(Code::Internal, "{}: {} reads back otherwise than it was written", path, what);
}

uint64_t hash_of(const GgufTensor& t) { return XXH3_64bits(t.data, static_cast<size_t>(t.bytes)); }

}  // namespace

std::vector<MergedWeight> plan_merge(const Model& model, std::span<const AdapterSet* const> adapters,
                                     std::optional<DType> type) {
  std::vector<MergedWeight> plan;
  Offences offences;
  for (const GgufTensor& t : model.file().tensors()) {
    const Weight* w = model.find(t.name);
    if (!w) continue;  // takes no part in the forward pass, and so has no adapter
    if (std::none_of(adapters.begin(), adapters.end(), [&](const AdapterSet* s) { return s->find(*w); }))
      continue;
    const TypeInfo& info = type_info(type.value_or(w->type));
    if (!info.codec || !info.codec->encode) {
      offences.add(fmt::format("{} would be {}", w->name, info.name));
    } else if (w->ne[0] % info.block_elements) {
      offences.add(fmt::format("{} has rows of {}, which are no multiple of the {} of {}", w->name, w->ne[0],
                               info.block_elements, info.name));
    }
    plan.push_back({w, info.type});
  }
  if (!offences.none()) {
    fail(Code::Unsupported,
         "{}: these tensors cannot be written in their type once they are merged; give all merged tensors "
         "another "
         "with --outtype f16, f32, q8_0 or another that is written here:{}",
         model.file().path(), offences.text());
  }
  if (plan.empty()) fail(Code::Usage, "there is no adapter to merge");
  return plan;
}

void write_merged(const std::string& path, const Model& model, std::span<const AdapterSet* const> adapters,
                  const std::vector<MergedWeight>& plan, ThreadPool& pool) {
  GgufWriter writer;
  const GgufFile& base = model.file();
  for (const GgufEntry& e : base.entries()) {
    if (!is_split_key(e.key)) writer.add_value(e.key, e.value);
  }
  std::map<std::string, uint64_t, std::less<>> hashes;  // of the merged tensors, as they were written
  for (const GgufTensor& t : base.tensors()) {
    const auto merged = std::find_if(plan.begin(), plan.end(),
                                     [&](const MergedWeight& m) { return m.weight->name == t.name; });
    if (merged == plan.end()) {
      writer.add_tensor(t.name, t.type, t.ne, std::span(t.data, static_cast<size_t>(t.bytes)));
      continue;
    }
    writer.add_tensor(t.name, merged->type, t.ne, [&, merged](const ByteSink& sink) {
      const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
      TANDEM_CHECK(state && XXH3_64bits_reset(state.get()) == XXH_OK);
      Merger(*merged, adapters).produce(pool, [&](std::span<const std::byte> bytes) {
        TANDEM_CHECK(XXH3_64bits_update(state.get(), bytes.data(), bytes.size()) == XXH_OK);
        sink(bytes);
      });
      hashes[merged->weight->name] = XXH3_64bits_digest(state.get());
    });
  }
  writer.write(path, [&](const std::string& temporary) {
    const Model back = Model::open(temporary);
    require_same(back.file().tensors().size() == base.tensors().size(), path, "the list of tensors");
    for (const GgufEntry& e : base.entries()) {
      if (is_split_key(e.key)) continue;
      const GgufValue* v = back.file().value(e.key);
      require_same(
          v && v->type == e.value.type && v->is_array == e.value.is_array &&
              std::equal(v->bytes.begin(), v->bytes.end(), e.value.bytes.begin(), e.value.bytes.end()),
          path, e.key);
    }
    for (const GgufTensor& t : base.tensors()) {
      const GgufTensor* there = back.file().find(t.name);
      const auto hash = hashes.find(t.name);
      const bool same = there && (hash != hashes.end() ? hash_of(*there) == hash->second
                                                       : there->type == t.type && there->bytes == t.bytes &&
                                                             std::memcmp(there->data, t.data,
                                                                         static_cast<size_t>(t.bytes)) == 0);
      require_same(same, path, t.name);
    }
  });
}

}  // namespace tandem
