#include "driver/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace optc {
namespace {

// Attempts from here on draw plain values.
constexpr int kPlainFrom = 3;

std::string first_error(const Diagnostics &diagnostics) {
  for (const Diagnostic &d : diagnostics.all())
    if (d.severity == Severity::kError) return d.message + (d.notes.empty() ? "" : ": " + d.notes.front());
  return "no reason was given";
}

}  // namespace

std::string describe(const SizeByName &sizes) {
  std::string text;
  for (const auto &[name, value] : sizes) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

InputSets::InputSets(const Graph &graph, InputSource source) : source_(std::move(source)), sizes_(graph) {
  const auto &inputs = graph.region(Graph::main()).inputs;
  all_named_ = std::all_of(inputs.begin(), inputs.end(), [&](ValueId id) {
    return std::any_of(source_.named.begin(), source_.named.end(),
                       [&](const auto &named) { return named.first == graph.value(id).name; });
  });
}

Result<std::vector<RuntimeValue>> InputSets::values(const Graph &graph, const SizeByName &sizes, const Draw &draw,
                                                    Diagnostics &diagnostics) const {
  std::vector<RuntimeValue> fallback;
  if (made()) {
    // What files give need not be made; only what is left may be of a kind that cannot.
    Diagnostics quiet;
    Result<std::vector<RuntimeValue>> random =
        random_inputs(graph, sizes, draw, source_.named.empty() ? diagnostics : quiet);
    if (random)
      fallback = *std::move(random);
    else if (source_.named.empty())
      return random.failure();
  }
  return read_inputs(graph, source_.folder, source_.named, fallback, diagnostics);
}

Result<InputSet> InputSets::draw(const Graph &graph, int number, int attempt, Diagnostics &diagnostics) const {
  InputSet set;
  if (made()) {
    OPTC_ASSIGN(set.sizes, sizes_.choose(source_.sizes, number % 2, sizes_of(attempt), diagnostics));
  }
  OPTC_ASSIGN(set.values, values(graph, set.sizes, how(number, attempt), diagnostics));
  return set;
}

int InputSets::sizes_of(int attempt) const {
  constexpr int kSmallest = SizeChooser::kAttempts - 1;
  return source_.smallest ? (attempt + kSmallest) % SizeChooser::kAttempts : attempt;
}

Draw InputSets::how(int number, int attempt) const {
  return {source_.seed + static_cast<uint64_t>(number), attempt >= kPlainFrom, attempt > 0};
}

Result<InputSet> InputSets::fitting(const Graph &graph, int number, const Run &run, Diagnostics &diagnostics) {
  Diagnostics first(diagnostics.file());
  Failure failure;
  std::string refused;
  std::vector<std::string> tried;
  std::set<std::pair<SizeByName, bool>> seen;
  // The last attempt has the sizes of the set before.
  for (int attempt = attempt_; attempt < SizeChooser::kAttempts + (suited_ && made() ? 1 : 0); ++attempt) {
    Diagnostics said(diagnostics.file());
    const bool as_before = attempt == SizeChooser::kAttempts;
    Result<InputSet> set = as_before ? InputSet{{}, *suited_, {}} : draw(graph, number, attempt, said);
    if (as_before) {
      OPTC_ASSIGN(set->values, values(graph, *suited_, how(number, attempt_), said));
    }
    Status status;
    if (set) {
      if (!seen.emplace(set->sizes, attempt >= kPlainFrom).second) continue;
      status = run(*set, said);
      if (status.ok()) {
        for (const Diagnostic &d : said.all()) (void)diagnostics.add(d);
        if (!as_before) attempt_ = attempt;
        suited_ = set->sizes;
        set->refused = refused;
        return set;
      }
    } else {
      status = set.failure();
    }
    const ErrorKind kind = status.failure().kind;
    const bool again = made() && (kind == ErrorKind::kUsage || kind == ErrorKind::kFault);
    if (tried.empty() || !again) {
      first = said;
      failure = status.failure();
      refused = (set && !set->sizes.empty() ? "with " + describe(set->sizes) + ": " : "") + first_error(said);
    }
    if (set) tried.push_back(set->sizes.empty() ? "other values" : describe(set->sizes));
    if (!again) break;
  }
  for (size_t i = 0; i < first.all().size(); ++i) {
    Diagnostic d = first.all()[i];
    const bool unsuited = failure.kind == ErrorKind::kUsage || failure.kind == ErrorKind::kFault;
    if (made() && unsuited && !tried.empty() && d.severity == Severity::kError && i + 1 == first.all().size()) {
      d.notes.push_back(fmt::format("on inputs made at random{}", tried[0] == "other values" ? "" : ", " + tried[0]));
      for (size_t k = 1; k < tried.size(); ++k) d.notes.push_back("the same or another error with " + tried[k]);
      if (d.help.empty())
        d.help = "--dim NAME=N sets a dimension; --input NAME=@FILE, or --inputs FOLDER, gives inputs that suit";
    }
    (void)diagnostics.add(std::move(d));
  }
  return failure;
}

Result<InputSet> InputSets::other_values(const Graph &graph, const InputSet &set, Diagnostics &diagnostics) const {
  if (!made()) return diagnostics.error(ErrorKind::kUsage, "files give the inputs");
  InputSet other{{}, set.sizes, {}};
  OPTC_ASSIGN(other.values, values(graph, set.sizes, {source_.seed + 7919, attempt_ >= kPlainFrom}, diagnostics));
  return other;
}

}  // namespace optc
