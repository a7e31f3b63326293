// optc cache [show|prune]: the bundles that run, verify and bench have built.

#include "cli/cache.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "driver/cache.h"

namespace optc::cli {
namespace {

std::string age(int64_t seconds) {
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} days", seconds / 86400);
}

int64_t sum_of(const std::vector<CachedBundle> &list) {
  int64_t sum = 0;
  for (const CachedBundle &one : list) sum += one.bytes;
  return sum;
}

int show(const CommonOptions &o) {
  const std::vector<CachedBundle> list = cached_bundles();
  if (o.format == "json") {
    nlohmann::ordered_json bundles = nlohmann::ordered_json::array();
    for (const CachedBundle &one : list)
      bundles.push_back({{"name", one.name},
                         {"folder", one.folder},
                         {"bytes", one.bytes},
                         {"idle_seconds", one.idle},
                         {"complete", one.complete}});
    print(nlohmann::ordered_json{{"schema_version", 1},
                                 {"folder", bundle_cache_path()},
                                 {"bytes", sum_of(list)},
                                 {"limit", cache_limit()},
                                 {"bundles", bundles}}
              .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
    return 0;
  }
  std::string text =
      fmt::format("{}: {} bundle{}, {} of at most {}\n", bundle_cache_path(), list.size(), list.size() == 1 ? "" : "s",
                  format_bytes(static_cast<double>(sum_of(list))), format_bytes(static_cast<double>(cache_limit())));
  for (const CachedBundle &one : list)
    text += fmt::format("{:>10}  used {:>8} ago  {}{}\n", format_bytes(static_cast<double>(one.bytes)), age(one.idle),
                        one.name, one.complete ? "" : "  (not finished)");
  print(text);
  return 0;
}

int prune(const CommonOptions &o, const std::string &most) {
  const int64_t limit = most.empty() ? 0 : parse_bytes(most);
  if (limit < 0) return run_usage_error(fmt::format("--max-size {}: expected bytes, like 500MB or 2GiB", most), "");
  const std::vector<CachedBundle> removed = prune_cache(limit, 0);
  const int64_t left = sum_of(cached_bundles());
  if (o.format == "json")
    print(nlohmann::ordered_json{
              {"schema_version", 1}, {"removed", removed.size()}, {"removed_bytes", sum_of(removed)}, {"bytes", left}}
              .dump(2) +
          "\n");
  else
    print(fmt::format("removed {} bundle{}, {}; {} left\n", removed.size(), removed.size() == 1 ? "" : "s",
                      format_bytes(static_cast<double>(sum_of(removed))), format_bytes(static_cast<double>(left))));
  return 0;
}

}  // namespace

void add_cache(CommandLine &line, int &code) {
  auto o = std::make_shared<CommonOptions>();
  auto action = std::make_shared<std::string>("show");
  auto most = std::make_shared<std::string>();
  Verb *verb = line.add_verb("cache", "the bundles that run, verify and bench have built: show them, or remove some");
  verb->footer(
      "Before a new bundle is built, the longest unused ones go until the rest is below OPTC_CACHE_SIZE (default "
      "2GiB); none that was used within the hour. The folder is OPTC_CACHE, else ~/.cache/optc.\n"
      "Example: optc cache\n         optc cache prune --max-size 500MB");
  verb->add_option("ACTION", *action, "show (default), or prune: remove bundles")
      ->one_of({"show", "prune"})
      ->type_name("");
  verb->add_option("--max-size", *most,
                   "prune: remove the longest unused until the rest has this size (default: all go)")
      ->type_name("BYTES");
  verb->add_option("--format", o->format, "text, or json (one object on stdout)")
      ->one_of({"text", "json"})
      ->type_name("FORM");
  verb->callback([o, action, most, &code] {
    if (*action == "show" && !most->empty()) {
      code = run_usage_error("--max-size belongs to `optc cache prune`", "");
      return;
    }
    code = *action == "show" ? show(*o) : prune(*o, *most);
  });
}

}  // namespace optc::cli
