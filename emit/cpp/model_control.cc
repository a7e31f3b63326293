// If and Loop in the schedule.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "emit/cpp/model_printer.h"
#include "emit/cpp/types.h"

namespace optc {

// Symbols among the dims of `to` that the construct decides get their values from the dims of `from`.
void ModelPrinter::take_sizes(const ControlFlow &control, BufferId from, BufferId to) {
  if (is_object(from) || is_object(to)) return;
  const Shape &source = program_.buffer(from).shape(), &target = program_.buffer(to).shape();
  for (size_t a = 0; a < target.size(); ++a) {
    const DimSymbol *s = single_symbol(target[a]);
    if (s && s->kind == SymbolKind::kData && defines(control, s) && !(source[a] == target[a]))
      define(*s, dim(source[a]));
  }
}

bool ModelPrinter::defines(const ControlFlow &control, const DimSymbol *s) const {
  return std::find(control.defines.begin(), control.defines.end(), s) != control.defines.end();
}

// Memory of the growing region for a buffer whose size is known by now.
void ModelPrinter::hold(BufferId id) {
  const BufferId r = root(id);
  const auto grown = grown_.find(r.index);
  if (grown == grown_.end()) return;
  const std::string name = declare(r);
  line(fmt::format("{} = run.grow<{}>({}, {});", name, cpp_type(program_.buffer(r).element()).storage, grown->second,
                   size(buffer_bytes(r))));
  line(fmt::format("if (!{}) return run.status;", name));
}

size_t ModelPrinter::new_slot() {
  const size_t slot = grown_.size();
  grown_.emplace(UINT32_MAX - 1 - static_cast<uint32_t>(extra_slots_++), slot);  // under the index of no buffer
  return slot;
}

void ModelPrinter::print_control(const Kernel &kernel, const ControlFlow &control) {
  line("// " + comment_text(kernel.note.empty() ? kernel.name : kernel.note));
  if (control.kind == ControlFlow::Kind::kIf)
    print_if(control);
  else
    print_loop(kernel, control);
}

// What is known of a run's sizes behind either of two paths: what each of them found.
ModelPrinter::Progress ModelPrinter::common(const Progress &a, const Progress &b) {
  Progress both;
  std::set_intersection(a.known.begin(), a.known.end(), b.known.begin(), b.known.end(),
                        std::inserter(both.known, both.known.end()));
  std::set_intersection(a.strings_made.begin(), a.strings_made.end(), b.strings_made.begin(), b.strings_made.end(),
                        std::inserter(both.strings_made, both.strings_made.end()));
  for (size_t i = 0; i < a.outputs_set.size(); ++i) both.outputs_set.push_back(a.outputs_set[i] && b.outputs_set[i]);
  for (size_t i = 0; i < a.constraints_set.size(); ++i)
    both.constraints_set.push_back(a.constraints_set[i] && b.constraints_set[i]);
  return both;
}

void ModelPrinter::print_if(const ControlFlow &control) {
  // Each branch begins with what was known before: the other one does not run.
  const Progress before = progress_;
  Progress after;
  for (size_t branch = 0; branch < control.bodies.size(); ++branch) {
    progress_ = before;
    if (branch == 0) {
      open(fmt::format("if ({}[0])", pointer(control.condition, false)));
    } else {
      --indent_;
      open("} else");
    }
    sequence(control.bodies[branch]);
    // All sizes first: an output may have a size that a later one gives.
    for (size_t i = 0; i < control.outputs.size(); ++i)
      if (control.outputs[i].valid()) take_sizes(control, control.results[branch][i], control.outputs[i]);
    after_definitions();
    for (size_t i = 0; i < control.outputs.size(); ++i) {
      const BufferId from = control.results[branch][i], to = control.outputs[i];
      if (!to.valid() || root(from) == root(to)) continue;
      hold(to);
      copy(from, to);
    }
    after = branch == 0 ? progress_ : common(after, progress_);
  }
  close();
  progress_ = control.bodies.size() < 2 ? common(before, after) : after;
  after_definitions();
}

// The results of an iteration become the body's inputs of the next one.
void ModelPrinter::print_carry(const ControlFlow &control) {
  const std::vector<BufferId> &results = control.results[0];
  // Sizes that change, and what must be saved since another copy overwrites it.
  std::vector<std::pair<const DimSymbol *, Dim>> sizes;
  bool staged = false;
  for (size_t c = 0; c < control.carried; ++c) {
    const BufferId from = results[1 + c], to = control.body_inputs[c];
    for (size_t e = 0; e < control.carried; ++e)
      staged = staged || (e != c && root(from) == root(control.body_inputs[e]) &&
                          root(results[1 + e]) != root(control.body_inputs[e]));
    if (is_object(to)) continue;
    const Shape &source = program_.buffer(from).shape(), &target = program_.buffer(to).shape();
    for (size_t a = 0; a < target.size(); ++a) {
      const DimSymbol *s = single_symbol(target[a]);
      if (s && defines(control, s) && !(source[a] == target[a])) sizes.emplace_back(s, source[a]);
    }
  }
  if (!staged && sizes.empty()) {
    for (size_t c = 0; c < control.carried; ++c)
      if (root(results[1 + c]) != root(control.body_inputs[c])) copy(results[1 + c], control.body_inputs[c]);
    return;
  }
  open("");
  std::vector<std::string> sources(control.carried), bytes(control.carried);
  for (size_t c = 0; c < control.carried; ++c) {
    const BufferId from = results[1 + c], to = control.body_inputs[c];
    sources[c] = names_.unique("next", 24);
    if (is_object(to)) {
      line(fmt::format("const OptcLibTensor {} = {};", sources[c], declare(root(from))));
      continue;
    }
    bytes[c] = sources[c] + "_bytes";
    line(fmt::format("const int64_t {} = {};", bytes[c], size(buffer_bytes(from))));
    const Dim offset = uses_.byte_offset(from);
    const BufferId base = root(from);
    bool save = base == root(to) && !offset.is(0);
    for (size_t e = 0; e < control.carried; ++e) save = save || (e != c && base == root(control.body_inputs[e]));
    if (!save) {
      line(fmt::format("const void *const {} = {};", sources[c], pointer(from, false)));
      continue;
    }
    line(fmt::format("void *const {} = run.template grow<uint8_t>({}, {});", sources[c], new_slot(), bytes[c]));
    line(fmt::format("if (!{}) return run.status;", sources[c]));
    line(fmt::format("memcpy({}, {}, static_cast<size_t>({}));", sources[c], pointer(from, false), bytes[c]));
  }
  std::vector<std::string> values;
  for (const auto &[s, d] : sizes) {
    values.push_back(names_.unique("size", 24));
    line(fmt::format("const int64_t {} = {};", values.back(), dim(d)));
  }
  for (size_t i = 0; i < sizes.size(); ++i) define(*sizes[i].first, values[i]);
  for (size_t c = 0; c < control.carried; ++c) {
    const BufferId from = results[1 + c], to = control.body_inputs[c];
    if (root(from) == root(to) && uses_.byte_offset(from).is(0)) continue;
    if (is_object(to)) {
      line(fmt::format("{} = {};", declare(root(to)), sources[c]));
      continue;
    }
    hold(to);
    line(fmt::format("memcpy({}, {}, static_cast<size_t>({}));", pointer(to, true), sources[c], bytes[c]));
  }
  close();
}

void ModelPrinter::print_loop(const Kernel &kernel, const ControlFlow &control) {
  const std::vector<BufferId> &results = control.results[0];
  const std::string i = names_.unique("trip", 24), go = names_.unique("go", 24), limit = names_.unique("trips", 24);
  line(fmt::format("const int64_t {} = {};", limit,
                   control.trip_count.valid() ? pointer(control.trip_count, false) + "[0]" : "INT64_MAX"));
  line(fmt::format("bool {} = {};", go,
                   control.condition.valid() ? pointer(control.condition, false) + "[0] != 0" : "true"));
  for (size_t c = 0; c < control.carried; ++c) {
    take_sizes(control, control.initial[c], control.body_inputs[c]);
    if (!is_object(control.body_inputs[c])) hold(control.body_inputs[c]);
    copy(control.initial[c], control.body_inputs[c]);
  }
  // How the slices of a scan are kept: in place where the output's size is known by now, else one behind the other.
  struct Scan {
    BufferId slice, to;
    size_t axis;
    bool reverse, in_place;
    std::string kept, bytes;
    size_t slot = 0;
  };
  std::vector<Scan> scans;
  for (size_t s = 1 + control.carried; s < results.size(); ++s) {
    const size_t index = s - 1 - control.carried;
    Scan scan;
    scan.slice = results[s];
    scan.to = control.outputs[s - 1];
    if (!scan.to.valid()) continue;
    if (is_object(scan.to)) {
      problems_.push_back(fmt::format("loop '{}' collects strings", kernel.name));
      continue;
    }
    scan.axis = index < control.scan_axes.size() ? static_cast<size_t>(control.scan_axes[index]) : 0;
    scan.reverse = index < control.scan_reverse.size() && control.scan_reverse[index];
    scan.in_place = scan.axis == 0 && all_known(element_count(program_.buffer(scan.to).shape()));
    if (!scan.in_place) {
      if (bit_width(program_.buffer(scan.to).element()) < 8)
        problems_.push_back(fmt::format("loop '{}' collects values of less than a byte", kernel.name));
      scan.kept = names_.unique("slices", 24);
      scan.bytes = scan.kept + "_bytes";
      scan.slot = new_slot();
      line(fmt::format("uint8_t *{} = nullptr;", scan.kept));
      line(fmt::format("int64_t {} = 0;", scan.bytes));
    } else {
      hold(scan.to);
    }
    scans.push_back(scan);
  }
  line(fmt::format("int64_t {} = 0;", i));
  open(fmt::format("for (; {0} < {1} && {2}; ++{0})", i, limit, go));
  if (control.iteration.valid()) line(fmt::format("{}[0] = {};", pointer(control.iteration, true), i));
  if (control.body_condition.valid()) line(fmt::format("{}[0] = 1;", pointer(control.body_condition, true)));
  const Progress before = progress_;  // the body may run no time at all
  after_definitions();                // conditions on the sizes of this iteration
  sequence(control.bodies[0]);
  line(fmt::format("{} = {}[0] != 0;", go, pointer(results[0], false)));
  for (const Scan &scan : scans) {
    const std::string bytes = dim(buffer_bytes(scan.slice), kUnaryPrecedence), from = pointer(scan.slice, false);
    if (scan.in_place) {
      const Dim length = program_.buffer(scan.to).shape()[0];
      const std::string at = scan.reverse ? fmt::format("({} - 1 - {})", dim(length, kAddPrecedence), i) : i;
      // The declared length bounds the slices, whatever the condition says.
      line(fmt::format("memcpy(reinterpret_cast<uint8_t *>({}) + {} * {}, {}, static_cast<size_t>({}));",
                       pointer(scan.to, true), at, bytes, from, bytes));
      continue;
    }
    if (needs_run_time_size(buffer_bytes(scan.slice))) {
      line(fmt::format("if ({} > 0 && {} != {})", i, scan.bytes, bytes));
      line(
          fmt::format("  return run.fail(OPTC_MODEL_FAULT, \"%s\", \"slices of '{}' differ in size from one iteration "
                      "to another\");",
                      comment_text(program_.buffer(scan.to).name)));
    }
    line(fmt::format("{} = {};", scan.bytes, bytes));
    line(fmt::format("{0} = run.extend<uint8_t>({1}, {2} * {3}, ({2} + 1) * {3} + 1);", scan.kept, scan.slot, i,
                     scan.bytes));
    line(fmt::format("if (!{}) return run.status;", scan.kept));
    line(fmt::format("memcpy({} + {} * {}, {}, static_cast<size_t>({}));", scan.kept, i, scan.bytes, from, scan.bytes));
  }
  print_carry(control);
  close();
  progress_ = before;
  // Sizes: of carried values, of slices, and the number of iterations.
  for (size_t c = 0; c < control.carried; ++c)
    if (control.outputs[c].valid()) take_sizes(control, control.body_inputs[c], control.outputs[c]);
  for (const Scan &scan : scans) {
    const Shape &shape = program_.buffer(scan.to).shape(), &slice = program_.buffer(scan.slice).shape();
    for (size_t a = 0; a < shape.size(); ++a) {
      const DimSymbol *s = single_symbol(shape[a]);
      if (!s || progress_.known.count(s) || !defines(control, s)) continue;
      if (a == scan.axis)
        define(*s, i);
      else
        define(*s, fmt::format("{} > 0 ? {} : 0", i, dim(slice[a < scan.axis ? a : a - 1])));
    }
  }
  for (const DimSymbol *s : control.defines)
    if (s && !progress_.known.count(s)) define(*s, i);
  after_definitions();
  for (size_t c = 0; c < control.carried; ++c) {
    if (!control.outputs[c].valid()) continue;
    if (!is_object(control.outputs[c])) hold(control.outputs[c]);
    copy(control.body_inputs[c], control.outputs[c]);
  }
  for (const Scan &scan : scans) {
    if (scan.in_place) continue;
    hold(scan.to);
    Dim before = 1;
    for (size_t a = 0; a < scan.axis; ++a) before = before * program_.buffer(scan.to).shape()[a];
    line(fmt::format("place_slices({}, {}, {}, {}, {}, {});", pointer(scan.to, true), scan.kept, i, dim(before),
                     scan.bytes, scan.reverse ? "true" : "false"));
  }
}

}  // namespace optc
