#include "ir/program/placement.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

namespace optc {
namespace {

std::string quoted(const Program &program, BufferId b) { return "'" + program.buffer(b).name + "'"; }

// Calls `f` with every buffer that a step of the main order touches, bodies of control flow included.
template <typename F>
void each_touched(const Uses &uses, const Program &program, KernelId k, F &&f) {
  for (BufferId b : uses.reads(k)) f(b);
  for (BufferId b : uses.writes(k)) f(b);
  if (const ControlFlow *control = program.kernel(k).control())
    for (const auto &body : control->bodies)
      for (KernelId inner : body) each_touched(uses, program, inner, f);
}

bool constant(Dim d) { return d.is_constant() && d.value() < kDimOverflow; }

}  // namespace

std::string lifetime_text(const Program &program, const Placement &p) {
  auto name = [&](size_t step) {
    return step < program.order.size() ? "'" + program.kernel(program.order[step]).name + "'" : std::string("the end");
  };
  return "from kernel " + name(p.first) + " to " + name(p.last);
}

// Sweeps over the steps with the places that live there, by offset: the sum of the sizes of what lives is small, and
// where nothing overlaps only neighbours need to be asked.
std::string find_overlap(const Program &program, std::vector<PlacedBytes> &placed) {
  std::stable_sort(placed.begin(), placed.end(),
                   [](const PlacedBytes &a, const PlacedBytes &b) { return a.placement->first < b.placement->first; });
  auto text = [&](const PlacedBytes &p) {
    return quoted(program, p.placement->buffer) + " (bytes " + std::to_string(p.offset) + " to " +
           std::to_string(p.end()) + ", " + lifetime_text(program, *p.placement) + ")";
  };
  auto last_ends_later = [](const PlacedBytes *a, const PlacedBytes *b) {
    return a->placement->last > b->placement->last;
  };
  std::map<int64_t, const PlacedBytes *> alive;  // by offset
  std::priority_queue<const PlacedBytes *, std::vector<const PlacedBytes *>, decltype(last_ends_later)> ends(
      last_ends_later);
  for (const PlacedBytes &p : placed) {
    if (p.bytes == 0) continue;
    for (; !ends.empty() && ends.top()->placement->last < p.placement->first; ends.pop())
      alive.erase(ends.top()->offset);
    const auto above = alive.lower_bound(p.offset);
    const PlacedBytes *other = nullptr;
    if (above != alive.end() && above->second->offset < p.end()) other = above->second;
    if (above != alive.begin() && std::prev(above)->second->end() > p.offset) other = std::prev(above)->second;
    if (other) return "two buffers lie over one another: " + text(*other) + " and " + text(p);
    alive.emplace(p.offset, &p);
    ends.push(&p);
  }
  return {};
}

std::vector<Lifetime> lifetimes(const Program &program, const Uses &uses) {
  std::vector<Lifetime> lives(program.buffers.size());
  auto touch = [&](BufferId b, size_t step) {
    Lifetime &life = lives[uses.root(b).index];
    life.first = std::min(life.first, step);
    life.last = std::max(life.last, step);
  };
  for (size_t step = 0; step < program.order.size(); ++step)
    each_touched(uses, program, program.order[step], [&](BufferId b) { touch(b, step); });
  for (BufferId b : program.outputs) touch(b, program.order.size());
  return lives;
}

void check_placements(const Program &program, const std::function<void(const std::string &)> &fail) {
  if (program.placements.empty()) return;
  const Uses uses(program);
  const std::vector<Lifetime> lives = lifetimes(program, uses);
  std::vector<bool> has(program.buffers.size());
  std::vector<PlacedBytes> placed;
  for (const Placement &p : program.placements) {
    const std::string name = quoted(program, p.buffer);
    const Buffer &b = program.buffer(p.buffer);
    if ((b.kind != BufferKind::kTemporary && b.kind != BufferKind::kScratch) || b.alias.valid())
      fail("the place of " + name + ", which is no storage of its own");
    if (has[p.buffer.index]) fail(name + " has two places");
    has[p.buffer.index] = true;
    if (!(p.bytes == storage_bytes(b)))
      fail(name + " takes " + storage_bytes(b).str() + " bytes, its place has " + p.bytes.str());
    const Lifetime &life = lives[p.buffer.index];
    if (p.last < p.first || (life.touched() && (life.first < p.first || life.last > p.last)))
      fail(name + " is used outside of its lifetime (" + lifetime_text(program, p) + ")");
    if (!constant(p.offset) || !constant(p.bytes)) continue;
    placed.push_back({&p, p.bytes.value(), p.offset.value()});
    if (p.offset.value() < 0 || (constant(program.arena_bytes) && placed.back().end() > program.arena_bytes.value()))
      fail(name + " lies outside of the arena");
  }
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer &b = program.buffers[i];
    if (b.kind == BufferKind::kTemporary && !b.alias.valid() && b.type.is_tensor() && lives[i].touched() && !has[i])
      fail("'" + b.name + "' has no place");
  }
  if (const std::string wrong = find_overlap(program, placed); !wrong.empty()) fail(wrong);
}

void check_taken_over(const Program &program, const std::function<void(const std::string &)> &fail) {
  const Uses uses(program);
  // Whether all of the root's bytes are the view's, from their start.
  auto whole = [&](BufferId b) {
    return uses.offset(b).is(0) && storage_bytes(program.buffer(b)) == storage_bytes(program.buffer(uses.root(b)));
  };
  std::vector<BufferId> holder(program.buffers.size());  // by root: the name that took it over; invalid: none
  // Whether `b` is `name` or a view of it.
  auto under = [&](BufferId b, BufferId name) {
    for (; b.valid(); b = program.buffer(b).alias)
      if (b == name) return true;
    return false;
  };
  auto holds = [&](BufferId b) {
    const BufferId name = holder[uses.root(b).index];
    return !name.valid() || under(b, name);
  };
  std::function<void(KernelId)> kernel = [&](KernelId k) {
    const std::vector<BufferId> &read = uses.reads(k);
    for (BufferId b : read)
      if (!holds(b))
        fail("kernel " + program.kernel(k).name + " reads " + quoted(program, b) + ", whose bytes " +
             quoted(program, holder[uses.root(b).index]) + " has taken over");
    if (const ControlFlow *control = program.kernel(k).control())
      for (const auto &body : control->bodies)
        for (KernelId inner : body) kernel(inner);
    if (!program.kernel(k).nest()) return;
    for (BufferId b : uses.writes(k)) {
      if (uses.root(b) == b || !whole(b)) continue;
      auto older = [&](BufferId r) { return uses.root(r) == uses.root(b) && !under(r, b); };
      if (std::any_of(read.begin(), read.end(), older)) holder[uses.root(b).index] = b;
    }
  };
  for (KernelId k : program.order) kernel(k);
  for (BufferId b : program.outputs)
    if (!holds(b))
      fail("the result " + quoted(program, b) + " lies where " + quoted(program, holder[uses.root(b).index]) +
           " has taken over its bytes");
}

std::vector<Dim> live_sums(const MemoryPlan &plan) {
  constexpr size_t kMost = 64;                                              // each is compared with all of them
  std::map<size_t, std::pair<std::vector<Dim>, std::vector<Dim>>> changes;  // by step: what begins, what has ended
  for (const MemoryPlan::Item &item : plan.items) {
    changes[item.first].first.push_back(item.bytes);
    changes[item.last + 1].second.push_back(item.bytes);
  }
  std::vector<Dim> sums;
  Dim live(0);
  for (const auto &[step, change] : changes) {
    for (const Dim &d : change.first) live = live + d;
    for (const Dim &d : change.second) live = live - d;
    const auto exceeds = [](Dim a, Dim b) { return lower_bound(a - b) >= 0; };
    if (std::any_of(sums.begin(), sums.end(), [&](Dim other) { return exceeds(other, live); })) continue;
    if (sums.size() == kMost) break;
    sums.erase(std::remove_if(sums.begin(), sums.end(), [&](Dim other) { return exceeds(live, other); }), sums.end());
    sums.push_back(live);
  }
  return sums;
}

}  // namespace optc
