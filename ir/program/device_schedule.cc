#include "ir/program/device_schedule.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "ir/program/access.h"

namespace optc {
namespace {

// Every buffer that a kernel touches, bodies of control flow and what its results are copied from included.
void touched(const Program &program, const Kernel &kernel, std::vector<BufferId> &read,
             std::vector<BufferId> &written) {
  for (BufferId b : reads(program, kernel)) read.push_back(root_of(program, b).buffer);
  for (BufferId b : writes(program, kernel)) written.push_back(root_of(program, b).buffer);
}

struct SymbolWalk {
  const Program &program;
  std::vector<const DimSymbol *> out;
  std::unordered_set<uint32_t> seen;
  bool indices = false;  // of kind kScalar

  void dim(Dim d) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *s : symbols) {
      if (s->kind == SymbolKind::kScalar) {
        indices = true;
        scalar(ScalarId(s->scalar));
        dim(s->extent);
      }
      if (s->kind == SymbolKind::kData && std::find(out.begin(), out.end(), s) == out.end()) out.push_back(s);
    }
  }
  void scalar(ScalarId id) {
    if (!id.valid() || !seen.insert(id.index).second) return;
    const Scalar &s = program.scalars.at(id);
    if (s.op == ScalarOp::kIndex) dim(s.index_value);
    for (Dim d : s.index) dim(d);
    for (int i = 0; i < arity(s.op); ++i) scalar(s.args[i]);
  }
  void buffer(BufferId id) {
    for (;; id = program.buffer(id).alias) {
      const Buffer &b = program.buffer(id);
      if (b.type.has_shape())
        for (Dim d : b.shape()) dim(d);
      for (Dim d : b.padded) dim(d);
      dim(b.alias_offset);
      if (!b.alias.valid()) return;
    }
  }
  void nest(const LoopNest &nest) {
    for (const Loop &l : nest.loops) dim(l.extent);
    for (const Local &l : nest.locals)
      for (Dim d : l.shape) dim(d);
    for (const Stage &stage : nest.stages) {
      for (const Loop &l : stage.loops) dim(l.extent);
      for (const StageOutput &o : stage.outputs) {
        for (Dim d : o.index) dim(d);
        for (ScalarId id : {o.value, o.condition, o.initial}) scalar(id);
      }
    }
  }
};

}  // namespace

bool found_at_run_time(Dim d) {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(d, symbols);
  return std::any_of(symbols.begin(), symbols.end(), [](const DimSymbol *s) { return s->kind == SymbolKind::kData; });
}

std::vector<const DimSymbol *> data_symbols(const Program &program, const Kernel &kernel) {
  if (kernel.control()) return {};
  const LoopNest *nest = kernel.nest();
  SymbolWalk walk{program, {}, {}};
  if (nest) walk.nest(*nest);
  for (BufferId b : reads(program, kernel)) walk.buffer(b);
  for (BufferId b : writes(program, kernel)) walk.buffer(b);
  if (nest && nest->contraction) walk.dim(nest->contraction->causal_offset);
  return walk.out;
}

bool computes_indices(const Program &program, const Kernel &kernel) {
  SymbolWalk walk{program, {}, {}};
  if (kernel.nest()) walk.nest(*kernel.nest());
  return walk.indices;
}

bool DeviceSchedule::mixed() const {
  const auto gpu = std::count_if(segment.begin(), segment.end(), [](int s) { return s >= 0; });
  return gpu > 0 && gpu < static_cast<std::ptrdiff_t>(segment.size());
}

size_t DeviceSchedule::copy_count() const {
  size_t count = 0;
  for (const auto &list : copies) count += list.size();
  return count;
}

DeviceSchedule plan_devices(const Program &program, const std::vector<bool> &on_gpu,
                            const std::vector<std::string> &reasons, bool watched) {
  DeviceSchedule schedule;
  const size_t n = program.order.size();
  schedule.segment.assign(n, -1);
  schedule.reason = reasons;
  schedule.copies.resize(n + 1);
  struct Valid {
    bool host = false, device = false;
  };
  std::map<uint32_t, Valid> valid;
  for (BufferId id : program.inputs) valid[root_of(program, id).buffer.index].host = true;
  std::map<uint32_t, size_t> last;  // the position of the last kernel that touches a root; n: an output
  if (watched) {
    schedule.shown.resize(n);
    for (size_t i = 0; i < n; ++i) {
      std::vector<BufferId> all;
      touched(program, program.kernel(program.order[i]), all, all);
      for (const BufferId b : all) last[b.index] = i;
    }
    for (const BufferId b : program.outputs) last[root_of(program, b).buffer.index] = n;
  }
  auto ready = [&](BufferId id, bool device, size_t position) {
    const Buffer &b = program.buffer(id);
    if (b.kind == BufferKind::kConstant) return;
    Valid &v = valid[id.index];
    if (device ? v.device || !v.host : v.host || !v.device) return;  // there, or nowhere yet
    schedule.copies[position].push_back({id, device});
    (device ? v.device : v.host) = true;
  };
  for (size_t i = 0; i < n;) {
    // A segment's copies are made before its first kernel: nothing on the host changes during it.
    size_t end = i + 1;
    if (on_gpu[i] && !watched)
      while (end < n && on_gpu[end]) ++end;
    for (size_t k = i; k < end; ++k) {
      const Kernel &kernel = program.kernel(program.order[k]);
      std::vector<BufferId> read, written;
      touched(program, kernel, read, written);
      for (BufferId b : read) ready(b, on_gpu[i], i);
      for (BufferId b : written) ready(b, on_gpu[i], i);  // what other kernels wrote beside it
      for (BufferId b : written) {
        Valid &v = valid[b.index];
        v.host = !on_gpu[i];
        v.device = on_gpu[i];
      }
      if (!on_gpu[i]) continue;
      schedule.segment[k] = schedule.segments;
      for (const DimSymbol *s : data_symbols(program, kernel))
        if (std::find(schedule.data_symbols.begin(), schedule.data_symbols.end(), s) == schedule.data_symbols.end())
          schedule.data_symbols.push_back(s);
    }
    if (on_gpu[i]) ++schedule.segments;
    if (on_gpu[i] && watched)
      for (auto &[index, v] : valid) {
        const BufferId b(size_t{index});
        if (!v.device || last[index] < i || program.buffer(b).kind == BufferKind::kInput) continue;
        schedule.shown[i].push_back({b, false});
        v.host = true;
      }
    i = end;
  }
  for (BufferId id : program.outputs) ready(root_of(program, id).buffer, false, n);
  return schedule;
}

}  // namespace optc
