// optc doctor: what of the programs and libraries that optc works with is there, and what to do where one is not.

#include "driver/doctor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/common.h"

namespace optc::cli {
namespace {

Status doctor(const CommonOptions &o, const std::string &version, Diagnostics &diagnostics) {
  const std::vector<Finding> findings = examine();
  std::string missing;
  for (const Finding &f : findings)
    if (!f.there && f.need == Need::kBundles) missing += (missing.empty() ? "" : ", ") + f.name;
  if (o.format == "json") {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Finding &f : findings)
      list.push_back({{"name", f.name},
                      {"there", f.there},
                      {"needed", f.need == Need::kBundles},
                      {"what", f.what},
                      {"help", f.there ? "" : f.help}});
    print(nlohmann::ordered_json{
              {"schema_version", 1}, {"version", version}, {"ready", missing.empty()}, {"findings", list}}
              .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
  } else {
    print(fmt::format("optc {}\n", version));
    for (const Finding &f : findings) {
      const char *state = f.there ? "ok" : f.need == Need::kBundles ? "MISSING" : "-";
      print(fmt::format("{:<8} {:<14} {}\n", state, f.name, f.what));
      if (!f.there && !f.help.empty()) print(fmt::format("{:<23} {}\n", "", f.help));
    }
  }
  if (missing.empty()) return {};
  return diagnostics.error(ErrorKind::kMismatch, "bundles cannot be built here: " + missing);
}

}  // namespace

void add_doctor(CommandLine &line, int &code, const std::string &version) {
  auto o = std::make_shared<CommonOptions>();
  Verb *verb = line.add_verb("doctor", "whether what optc works with is there: compiler, driver, card, cache");
  verb->footer("Exits with 1 where what builds bundles is missing. Example: optc doctor --format=json");
  verb->add_option("--format", o->format, "text or json (one object on stdout)")
      ->one_of({"text", "json"})
      ->type_name("FORM");
  on_parsed(*verb, o, code, [o, version](Diagnostics &diagnostics) { return doctor(*o, version, diagnostics); });
}

}  // namespace optc::cli
