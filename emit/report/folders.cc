// Folders of a drawing: a tree of scopes, thinned where it says little; what repeats becomes a series; what is still
// wide is cut into parts. So no folder has more than kMost things in it, whatever the model.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "emit/report/drawing.h"

namespace optc {

const char *to_string(DrawnFolder::Kind kind) {
  switch (kind) {
    case DrawnFolder::Kind::kWhole:
      return "whole";
    case DrawnFolder::Kind::kScope:
      return "scope";
    case DrawnFolder::Kind::kSeries:
      return "series";
    case DrawnFolder::Kind::kRepeat:
      return "repeat";
    case DrawnFolder::Kind::kPart:
      return "part";
  }
  return "scope";
}

namespace {

constexpr size_t kLeast = 3;         // a scope of fewer items is not worth a folder
constexpr size_t kAlike = 3;         // so many folders alike are a series
constexpr size_t kMost = 40;         // more things than that in a folder are divided
constexpr size_t kWorthwhile = 5;    // loose items between folders become a part from so many on
constexpr size_t kPart = 24;         // into parts of about so many
constexpr size_t kPeriod = 400;      // the longest block that is looked for as a repeat
constexpr int kRounds = 16;          // repeats in one folder
constexpr size_t kEffort = 8000000;  // comparisons of one search for repeats

struct Child {
  bool folder = false;
  size_t index = 0;  // of Folding::folders_, or an item
};
struct Folder {
  DrawnFolder::Kind kind = DrawnFolder::Kind::kScope;
  std::string label;
  std::vector<Child> children;
  size_t items = 0;  // inside, at any depth
  uint64_t key = 0;  // equal for folders that look alike
};

class Folding {
 public:
  Folding(const std::vector<std::vector<std::string>> &paths, const std::vector<uint64_t> &keys)
      : paths_(paths), keys_(keys) {
    folders_.push_back({DrawnFolder::Kind::kWhole, "", {}, 0, 0});
  }

  void run(Drawing &drawing) {
    scopes();
    thin(0);
    divide(0);
    write(drawing);
  }

 private:
  size_t add(DrawnFolder::Kind kind, std::string label, std::vector<Child> children) {
    folders_.push_back({kind, std::move(label), std::move(children), 0, 0});
    weigh(folders_.size() - 1);
    return folders_.size() - 1;
  }
  void weigh(size_t f) {
    Folder &folder = folders_[f];
    folder.items = 0;
    folder.key = 1469598103934665603u;
    for (const Child &child : folder.children) {
      folder.items += child.folder ? folders_[child.index].items : 1;
      const uint64_t key = key_of(child);
      if (key) folder.key = (folder.key ^ key) * 1099511628211u;  // Fowler, Noll, Vo
    }
  }
  uint64_t key_of(const Child &child) const { return child.folder ? folders_[child.index].key : keys_[child.index]; }

  // The scopes as the paths say them, in the order of their first items.
  void scopes() {
    std::map<std::pair<size_t, std::string>, size_t> known;
    for (size_t item = 0; item < paths_.size(); ++item) {
      size_t at = 0;
      for (const std::string &label : paths_[item]) {
        const auto [it, fresh] = known.emplace(std::pair(at, label), folders_.size());
        if (fresh) {
          folders_[at].children.push_back({true, folders_.size()});
          folders_.push_back({DrawnFolder::Kind::kScope, label, {}, 0, 0});
        }
        at = it->second;
      }
      folders_[at].children.push_back({false, item});
    }
  }

  // Scopes of few items give them to the one around; a scope with one scope in it and nothing else is one with it.
  void thin(size_t f) {
    std::vector<Child> kept;
    for (const Child &child : std::vector<Child>(folders_[f].children)) {
      if (!child.folder) {
        kept.push_back(child);
        continue;
      }
      thin(child.index);
      const Folder &inner = folders_[child.index];
      if (inner.items < kLeast)
        kept.insert(kept.end(), inner.children.begin(), inner.children.end());
      else
        kept.push_back(child);
    }
    Folder &folder = folders_[f];
    folder.children = std::move(kept);
    if (folder.children.size() == 1 && folder.children[0].folder && folder.kind == DrawnFolder::Kind::kScope) {
      const Folder inner = folders_[folder.children[0].index];
      folder.label += "/" + inner.label;
      folder.children = inner.children;
    }
    weigh(f);
  }

  void divide(size_t f) {
    for (const Child &child : std::vector<Child>(folders_[f].children))
      if (child.folder) divide(child.index);
    std::vector<Child> children = folders_[f].children;
    series(children);
    if (children.size() > kMost) children = repeats(std::move(children));
    series(children);
    if (children.size() > kMost) loose(children);
    while (children.size() > kMost) parts(children);
    // A series that is all there is of a folder is that folder.
    if (children.size() == 1 && children[0].folder && folders_[children[0].index].kind != DrawnFolder::Kind::kScope &&
        f != 0)
      children = folders_[children[0].index].children;
    folders_[f].children = std::move(children);
    weigh(f);
  }

  // Folders that look alike, one behind another.
  void series(std::vector<Child> &children) {
    std::vector<Child> out;
    for (size_t i = 0; i < children.size();) {
      size_t end = i + 1;
      while (children[i].folder && end < children.size() && children[end].folder &&
             folders_[children[end].index].key == folders_[children[i].index].key)
        ++end;
      const bool alike = end - i >= kAlike && end - i < children.size() &&
                         folders_[children[i].index].kind != DrawnFolder::Kind::kSeries;
      if (alike) {
        std::vector<Child> members(children.begin() + static_cast<std::ptrdiff_t>(i),
                                   children.begin() + static_cast<std::ptrdiff_t>(end));
        const std::string label = folders_[children[i].index].label + " … " + folders_[children[end - 1].index].label;
        if (members.size() > kMost) parts(members);
        out.push_back({true, add(DrawnFolder::Kind::kSeries, label, std::move(members))});
      } else {
        out.insert(out.end(), children.begin() + static_cast<std::ptrdiff_t>(i),
                   children.begin() + static_cast<std::ptrdiff_t>(end));
      }
      i = end;
    }
    children = std::move(out);
  }

  struct Tandem {
    size_t begin = 0, period = 0, count = 0;
    size_t covers() const { return period * count; }
  };
  // The stretch of [begin, end) that repeats a block most often, measured by what it covers.
  Tandem tandem(const std::vector<Child> &children, size_t begin, size_t end) const {
    Tandem best;
    const size_t longest = std::min({kPeriod, (end - begin) / kAlike, 1 + kEffort / (end - begin + 1)});
    for (size_t period = 2; period <= longest; ++period) {
      size_t run = 0;
      for (size_t i = begin; i + period <= end; ++i) {
        if (i + period < end && key_of(children[i]) == key_of(children[i + period])) {
          ++run;
          continue;
        }
        const Tandem found{i - run, period, run / period + 1};
        run = 0;
        if (found.count >= kAlike && found.covers() > best.covers()) best = found;
      }
    }
    return best;
  }
  std::vector<Child> repeats(std::vector<Child> children) {
    for (int round = 0; round < kRounds && children.size() > kMost; ++round) {
      const Tandem best = tandem(children, 0, children.size());
      if (best.count < kAlike || best.covers() < kPart) break;
      std::vector<Child> blocks;
      for (size_t k = 0; k < best.count; ++k) {
        const auto first = children.begin() + static_cast<std::ptrdiff_t>(best.begin + k * best.period);
        std::vector<Child> block(first, first + static_cast<std::ptrdiff_t>(best.period));
        while (block.size() > kMost) parts(block);
        blocks.push_back({true, add(DrawnFolder::Kind::kRepeat, fmt::format("block {} of {}", k + 1, best.count),
                                    std::move(block))});
      }
      while (blocks.size() > kMost) parts(blocks);
      const size_t series = add(DrawnFolder::Kind::kSeries, "", std::move(blocks));
      const auto begin = children.begin() + static_cast<std::ptrdiff_t>(best.begin);
      children.erase(begin, begin + static_cast<std::ptrdiff_t>(best.covers()));
      children.insert(children.begin() + static_cast<std::ptrdiff_t>(best.begin), {true, series});
    }
    return children;
  }

  // Stretches of items between folders, so that those stay where they are seen.
  void loose(std::vector<Child> &children) {
    std::vector<Child> out;
    for (size_t i = 0; i < children.size();) {
      size_t end = i;
      while (end < children.size() && !children[end].folder) ++end;
      std::vector<Child> run(children.begin() + static_cast<std::ptrdiff_t>(i),
                             children.begin() + static_cast<std::ptrdiff_t>(end));
      if (run.size() >= kWorthwhile && run.size() < children.size()) {
        while (run.size() > kMost) parts(run);
        out.push_back({true, add(DrawnFolder::Kind::kPart, "", std::move(run))});
      } else {
        out.insert(out.end(), run.begin(), run.end());
      }
      if (end < children.size()) out.push_back(children[end++]);
      i = end;
    }
    children = std::move(out);
  }

  // Stretches of equal length.
  void parts(std::vector<Child> &children) {
    const size_t count = (children.size() + kPart - 1) / kPart;
    std::vector<Child> out;
    for (size_t k = 0; k < count; ++k) {
      const size_t from = children.size() * k / count, to = children.size() * (k + 1) / count;
      out.push_back({true, add(DrawnFolder::Kind::kPart, fmt::format("part {} of {}", k + 1, count),
                               {children.begin() + static_cast<std::ptrdiff_t>(from),
                                children.begin() + static_cast<std::ptrdiff_t>(to)})});
    }
    children = std::move(out);
  }

  void write(Drawing &drawing) const {
    struct Work {
      size_t folder, parent;
    };
    std::vector<Work> work{{0, 0}};
    while (!work.empty()) {
      const Work at = work.back();
      work.pop_back();
      const Folder &folder = folders_[at.folder];
      const size_t number = drawing.folders.size();
      drawing.folders.push_back({folder.kind, at.parent, folder.label});
      for (const Child &child : folder.children) {
        if (child.folder)
          work.push_back({child.index, number});
        else
          drawing.items[child.index].folder = number;
      }
    }
  }

  const std::vector<std::vector<std::string>> &paths_;
  const std::vector<uint64_t> &keys_;
  std::vector<Folder> folders_;
};

}  // namespace

void fold_items(Drawing &drawing, const std::vector<std::vector<std::string>> &paths,
                const std::vector<uint64_t> &keys) {
  drawing.folders.clear();
  Folding(paths, keys).run(drawing);
}

}  // namespace optc
