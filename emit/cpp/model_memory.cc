// Memory of a bundle: which buffers lie in the arena and when, the growing region, and the row scratch of kernels.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "emit/cpp/model_printer.h"
#include "emit/cpp/names.h"
#include "runtime/bundle/place.h"

namespace optc {

namespace {

// Whether `d` is no less for a larger `symbol`, as far as its form says it: sums and products of what is never
// negative.
bool never_shrinks(Dim d, const DimSymbol *symbol) {
  if (!uses_symbol(d, symbol)) return true;
  for (const DimTerm &t : d.node()->terms) {
    bool uses = false, grows = t.coefficient > 0;
    for (const DimAtom *a : t.atoms) {
      if (a->kind == AtomKind::kSymbol) {
        uses = uses || a->symbol == symbol;
        grows = grows && a->symbol->min >= 0;
        continue;
      }
      uses = uses || uses_symbol(a->a, symbol) || uses_symbol(a->b, symbol);
      const bool monotone = a->kind == AtomKind::kMin || a->kind == AtomKind::kMax
                                ? never_shrinks(a->a, symbol) && never_shrinks(a->b, symbol)
                                : a->kind == AtomKind::kFloorDiv && !uses_symbol(a->b, symbol) &&
                                      lower_bound(a->b) > 0 && never_shrinks(a->a, symbol);
      grows = grows && monotone && lower_bound(a->a) >= 0 && lower_bound(a->b) >= 0;
    }
    if (uses && !grows) return false;
  }
  return true;
}

constexpr int64_t kLayoutStep = 64;  // of the length of a cache: runs that one layout of the arena serves

// The arena for one thread with the largest that each size may be.
int64_t largest_arena(const MemoryPlan &plan) {
  std::vector<int64_t> bytes, offsets(plan.items.size());
  std::vector<int32_t> first, last;
  for (const MemoryPlan::Item &item : plan.items) {
    bytes.push_back(upper_bound(item.bytes));
    first.push_back(static_cast<int32_t>(item.first));
    last.push_back(static_cast<int32_t>(item.last));
  }
  return place(bytes.data(), first.data(), last.data(), static_cast<int32_t>(bytes.size()), offsets.data());
}

}  // namespace

// What lies in the arena, and when, is the Program's plan (Program::placements); where the sizes of some of it are
// found while the model runs, those lie in the growing region. The row scratch of kernels joins the plan here.
Status ModelPrinter::place() {
  std::vector<bool> on_host;  // of a Program some of whose kernels run on a GPU: what the others and the copies touch
  if (gpu_.schedule) {
    on_host.resize(program_.buffers.size());
    auto touch = [&](BufferId b) { on_host[root(b).index] = true; };
    for (size_t i = 0; i < program_.order.size(); ++i) {
      if (gpu_.schedule->segment[i] >= 0) continue;
      for (BufferId b : reads(program_, program_.kernel(program_.order[i]))) touch(b);
      for (BufferId b : writes(program_, program_.kernel(program_.order[i]))) touch(b);
    }
    for (const auto *lists : {&gpu_.schedule->copies, &gpu_.schedule->shown})
      for (const auto &copies : *lists)
        for (const DeviceCopy &copy : copies) touch(copy.buffer);
  }
  bool all_constant = true;
  for (const Placement &p : program_.placements) {
    if (!on_host.empty() && !on_host[p.buffer.index]) continue;
    if (is_object(p.buffer)) continue;
    if (needs_run_time_size(p.bytes)) {
      grown_.emplace(p.buffer.index, grown_.size());
      continue;
    }
    if (!p.bytes.is_constant() || p.bytes.value() >= kDimOverflow) all_constant = false;
    placed_index_[p.buffer.index] = placed.size();
    placed.push_back({p.buffer, p.bytes, p.first, p.last, -1});
  }
  OPTC_TRY(collect_scratch(program_.order, 0, false));
  for (const RowScratch &s : row_scratches)
    all_constant = all_constant && s.bytes.is_constant() && s.bytes.value() < kDimOverflow;
  if (all_constant) place_constant();
  return {};
}

// Offsets of all, with the row scratch of one thread. More threads need more of it: then it lies above what lives at
// the time.
void ModelPrinter::place_constant() {
  std::vector<int64_t> bytes, offsets(placed.size() + row_scratches.size());
  std::vector<int32_t> first, last;
  auto add = [&](Dim size, size_t from, size_t to) {
    bytes.push_back(size.value());
    first.push_back(static_cast<int32_t>(from));
    last.push_back(static_cast<int32_t>(to));
  };
  for (const PlacedBuffer &p : placed) add(p.bytes, p.first, p.last);
  for (const RowScratch &s : row_scratches) add(s.bytes, s.at, s.at);
  arena_bytes = optc::place(bytes.data(), first.data(), last.data(), static_cast<int32_t>(bytes.size()), offsets.data(),
                            &lower_bound_bytes);
  for (size_t i = 0; i < placed.size(); ++i) placed[i].offset = offsets[i];
  const std::vector<int64_t> ends = ends_by_step();
  for (size_t i = 0; i < row_scratches.size(); ++i) {
    row_scratches[i].offset = offsets[placed.size() + i];
    row_scratches[i].base = ends[row_scratches[i].at];
  }
}

MemoryPlan ModelPrinter::memory_plan() const {
  MemoryPlan plan;
  plan.arena_bytes = arena_bytes;
  plan.lower_bound_bytes = lower_bound_bytes;
  for (const PlacedBuffer &p : placed)
    plan.items.push_back({program_.buffer(p.buffer).name, p.bytes, p.first, p.last, p.offset, false});
  for (const RowScratch &r : row_scratches)
    plan.items.push_back(
        {"row scratch of " + r.kernel, r.bytes, r.at, r.at, arena_bytes >= 0 ? r.offset : int64_t{-1}, true});
  plan.open = open_dims();
  if (arena_bytes >= 0)
    plan.peak_bytes = arena_bytes;
  else if (plan.open.empty())
    plan.peak_bytes = largest_arena(plan);
  return plan;
}

// Bytes that a process of today's 64-bit machines can address. A bound above says nothing: a Slice to 10^9 gives one,
// too.
constexpr int64_t kAddressable = int64_t{1} << 47;

std::vector<std::string> ModelPrinter::open_dims() const {
  std::vector<const DimSymbol *> symbols;
  const auto add = [&](Dim bytes) {
    if (upper_bound(bytes) >= kAddressable) collect_symbols(bytes, symbols);
  };
  for (const PlacedBuffer &p : placed) add(p.bytes);
  for (const RowScratch &r : row_scratches) add(r.bytes);
  std::vector<std::string> names;
  for (const bool unbounded : {true, false}) {  // a product of bounds may be too large, too
    for (const DimSymbol *s : symbols)
      if ((!unbounded || s->max >= kDimOverflow) && std::find(names.begin(), names.end(), s->name) == names.end())
        names.push_back(s->name);
    if (!names.empty()) break;
  }
  return names;
}

Result<MemoryPlan> plan_memory(const Program &program, Diagnostics &diagnostics) {
  WeightPool weights;
  ModelPrinter printer(program, "model", weights, diagnostics, false);
  OPTC_TRY(printer.print());
  return printer.memory_plan();
}

// By step: where the buffers that live then end. The highest are painted first, each over the steps that are left.
std::vector<int64_t> ModelPrinter::ends_by_step() const {
  std::vector<std::pair<int64_t, const PlacedBuffer *>> order;
  for (const PlacedBuffer &p : placed) order.emplace_back((p.offset + p.bytes.value() + 63) / 64 * 64, &p);
  std::stable_sort(order.begin(), order.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
  std::vector<int64_t> ends(program_.order.size() + 1);
  std::vector<size_t> left(ends.size() + 1);  // by step: this one or a later one that is not painted
  std::iota(left.begin(), left.end(), size_t{0});
  auto next = [&](size_t s) {
    while (left[s] != s) s = left[s] = left[left[s]];
    return s;
  };
  for (const auto &[end, p] : order)
    for (size_t s = next(p->first); s <= p->last; s = next(s)) {
      ends[s] = end;
      left[s] = s + 1;
    }
  return ends;
}

// --- row scratch
// --------------------------------------------------------------------------------------------------------------------

// Prints every kernel and notes the row scratch that it needs; a kernel inside control flow counts as the construct
// around it.
Status ModelPrinter::collect_scratch(const std::vector<KernelId> &order, size_t fixed, bool inside) {
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t at = inside ? fixed : i;
    const Kernel &kernel = program_.kernel(order[i]);
    if (!inside && gpu_.schedule && gpu_.schedule->segment[i] >= 0) continue;
    if (const ControlFlow *control = kernel.control())
      for (const auto &body : control->bodies) OPTC_TRY(collect_scratch(body, at, true));
    const bool recurrent = std::holds_alternative<RecurrentSchedule>(kernel.schedule);
    if (!kernel.nest() && !recurrent) continue;
    Result<KernelText> printed = recurrent ? Result<KernelText>(print_recurrent(program_, kernel))
                                           : NestPrinter(program_, kernel, places_).print(diagnostics_);
    if (!printed.ok()) return printed.failure();
    const KernelText &text = texts_.emplace(&kernel, std::move(*printed)).first->second;
    if (text.scratch_bytes.is(0) || needs_run_time_size(text.scratch_bytes)) continue;
    scratch_index_[&kernel] = row_scratches.size();
    row_scratches.push_back({text.name, size(text.scratch_bytes), text.scratch_bytes, at, -1, 0});
  }
  return {};
}

// Before the call of a kernel: where its row scratch lies.
void ModelPrinter::give_scratch(const Kernel &kernel, const KernelText &text) {
  if (const auto at = scratch_index_.find(&kernel); at != scratch_index_.end())
    return line(fmt::format("run.use_scratch({});", at->second));
  // A size that a kernel finds while the model runs: the scratch lies in the growing region.
  if (text.scratch_bytes.is(0)) return;
  if (grown_scratch_ == SIZE_MAX) {
    grown_scratch_ = grown_.size();
    grown_.emplace(UINT32_MAX, grown_scratch_);
  }
  line(fmt::format("if (!run.grow_scratch({}, {})) return run.status;", grown_scratch_, size(text.scratch_bytes)));
}

// The part of Model that says how much memory a run needs, and where things lie in it.
std::string ModelPrinter::plan_source() const {
  auto *self = const_cast<ModelPrinter *>(this);
  auto list = [](const auto &items, const char *separator, const auto &text) {
    std::string out;
    for (const auto &item : items) out += (out.empty() ? "" : separator) + text(item);
    return out.empty() ? std::string("0") : out;
  };
  std::string out;
  if (!row_scratches.empty()) {
    std::vector<std::string> sizes, which;
    for (const RowScratch &s : row_scratches) {
      auto at = std::find(sizes.begin(), sizes.end(), s.text);
      if (at == sizes.end()) at = sizes.insert(at, s.text);
      which.push_back(std::to_string(at - sizes.begin()));
    }
    const auto same = [](const std::string &s) { return s; };
    out += "  // Row scratch: bytes for one task of each kernel that needs some.\n";
    out += "  static void scratch([[maybe_unused]] const Dims &d, int64_t *bytes) {\n";
    out += fmt::format("    const int64_t sizes[] = {{\n        {}}};\n", list(sizes, ",\n        ", same));
    out += fmt::format("    static constexpr int16_t which[] = {{{}}};\n", list(which, ", ", same));
    out += "    for (size_t i = 0; i < kScratch; ++i) bytes[i] = sizes[which[i]];\n  }\n\n";
  } else {
    out += "  static void scratch(const Dims &, int64_t *) {}\n\n";
  }
  auto numbers = [&](const auto &of_placed, const auto &of_scratch) {
    std::string out;
    for (const PlacedBuffer &p : placed) out += (out.empty() ? "" : ", ") + std::to_string(of_placed(p));
    for (const RowScratch &s : row_scratches) out += (out.empty() ? "" : ", ") + std::to_string(of_scratch(s));
    return out;
  };
  out += self->print_laid_out();
  if (arena_bytes < 0 && placed.size() + row_scratches.size() > 0) {
    const auto scratches = [&] {
      std::string text;
      for (size_t i = 0; i < row_scratches.size(); ++i)
        text += fmt::format("{}scratch[{}]", i % 8 ? ", " : i ? ",\n        " : "", i);
      return text;
    }();
    const auto sizes_of = [&](const auto &size_text) {
      std::string text;
      for (const PlacedBuffer &p : placed) text += (text.empty() ? "" : ",\n        ") + size_text(p.bytes);
      return text + (text.empty() || scratches.empty() ? "" : ",\n        ") + scratches;
    };
    const auto largest = [](Dim bytes) { return std::to_string(upper_bound(bytes)); };
    const char *const head = "([[maybe_unused]] const int64_t *scratch, int64_t *offsets) {\n";
    out += "  // Places sizes: between the kernels that use each first and last.\n";
    out += "  static int64_t place_sizes(const int64_t *bytes, int64_t *offsets) {\n";
    out +=
        fmt::format("    static constexpr int32_t first[] = {{{}}};\n",
                    numbers([](const PlacedBuffer &p) { return p.first; }, [](const RowScratch &s) { return s.at; }));
    out += fmt::format("    static constexpr int32_t last[] = {{{}}};\n",
                       numbers([](const PlacedBuffer &p) { return p.last; }, [](const RowScratch &s) { return s.at; }));
    out += "    return place(bytes, first, last, kPlaced + kScratch, offsets);\n  }\n";
    out += "  // Where the buffers lie for these dims.\n";
    out +=
        "  static int64_t plan([[maybe_unused]] const Dims &d, int64_t, [[maybe_unused]] const int64_t *scratch, "
        "int64_t *offsets) {\n";
    out +=
        fmt::format("    const int64_t bytes[] = {{\n        {}}};\n    return place_sizes(bytes, offsets);\n  }}\n\n",
                    sizes_of([&](Dim bytes) { return self->size(bytes); }));
    const std::vector<std::string> open = open_dims();
    out += fmt::format("  static constexpr bool kRanged = {};\n  static constexpr const char *open_dims = {};\n",
                       open.empty(),
                       open.empty() ? "nullptr" : string_literal(fmt::format("'{}'", fmt::join(open, "', '"))));
    if (!open.empty()) return out + "\n";
    out +=
        "  // The same for the most that each size takes over the ranges of the dims.\n  static int64_t plan_largest";
    out += head +
           fmt::format("    const int64_t bytes[] = {{\n        {}}};\n    return place_sizes(bytes, offsets);\n  }}\n",
                       sizes_of(largest));
    out += "  static void largest_scratch([[maybe_unused]] int64_t *bytes) {\n";
    for (size_t i = 0; i < row_scratches.size(); ++i)
      out += fmt::format("    bytes[{}] = {};\n", i, largest(row_scratches[i].bytes));
    return out + "  }\n\n";
  }
  out += "  static constexpr bool kRanged = false;\n  static constexpr const char *open_dims = nullptr;\n";
  if (row_scratches.empty())
    return out +
           fmt::format("  static int64_t plan(const Dims &, int64_t, const int64_t *, int64_t *) {{ return {}; }}\n\n",
                       std::max<int64_t>(arena_bytes, 0));
  auto offsets = [&](const auto &of) {
    return list(row_scratches, ", ", [&](const RowScratch &s) { return std::to_string(of(s)); });
  };
  // Behind the scratch of a bundle that is watched lies a guard, for which the place among the buffers has no room.
  out += probe_ ? "  // The buffers lie where `execute` says, the row scratch and the guards behind it above them.\n"
                : "  // The buffers lie where `execute` says. The row scratch lies among them for one thread, and "
                  "above those that "
                  "live\n  // at the time for more.\n";
  out += fmt::format("  static int64_t plan(const Dims &, int64_t{}, const int64_t *scratch, int64_t *offsets) {{\n",
                     probe_ ? "" : " threads");
  if (!probe_)
    out += fmt::format("    static constexpr int64_t one[] = {{{}}};\n",
                       offsets([](const RowScratch &s) { return s.offset; }));
  out += fmt::format("    static constexpr int64_t more[] = {{{}}};\n",
                     offsets([](const RowScratch &s) { return s.base; }));
  out += fmt::format("    int64_t arena = {};\n", arena_bytes);
  out += fmt::format(
      "    for (size_t i = 0; i < kScratch; ++i) {{\n"
      "      offsets[kPlaced + i] = {}more[i];\n"
      "      arena = most(arena, offsets[kPlaced + i] + scratch[i]);\n    }}\n    return arena;\n  }}\n\n",
      probe_ ? "" : "threads == 1 ? one[i] : ");
  return out;
}

// The lengths of caches that grow with every run, where nothing that is placed takes less for a longer one.
std::vector<const DimSymbol *> ModelPrinter::growing_lengths() const {
  std::vector<const DimSymbol *> lengths;
  for (const SymbolSource &source : program_.sources) {
    const auto grows = [&](const State &s) {
      return s.axis >= 0 && s.input == source.input && static_cast<uint32_t>(s.axis) == source.axis;
    };
    if (source.capacity || std::none_of(program_.states.begin(), program_.states.end(), grows)) continue;
    const auto keeps = [&](Dim bytes) { return never_shrinks(bytes, source.symbol); };
    if (std::all_of(placed.begin(), placed.end(), [&](const PlacedBuffer &p) { return keeps(p.bytes); }) &&
        std::all_of(row_scratches.begin(), row_scratches.end(), [&](const RowScratch &r) { return keeps(r.bytes); }))
      lengths.push_back(source.symbol);
  }
  return lengths;
}

std::string ModelPrinter::print_laid_out() {
  const std::vector<const DimSymbol *> lengths = arena_bytes < 0 ? growing_lengths() : std::vector<const DimSymbol *>();
  if (lengths.empty()) return "  static const Dims &laid_out(const Dims &d) { return d; }\n\n";
  std::string out =
      "  // The dims that the arena is laid out for: the length of a cache that grows counts in whole steps, so that a "
      "layout\n  // serves as many runs.\n  static Dims laid_out(Dims d) {\n";
  for (const DimSymbol *s : lengths) {
    const std::string field = symbol(*s),
                      rounded = fmt::format("({0} + {1}) / {2} * {2}", field, kLayoutStep - 1, kLayoutStep);
    out += fmt::format("    {} = {};\n", field,
                       s->max < kDimOverflow ? fmt::format("least({}, {})", rounded, s->max) : rounded);
  }
  return out + "    return d;\n  }\n\n";
}

}  // namespace optc
