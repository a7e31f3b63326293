// Measured choices: the file of `optc tune` is read back as it was written and refused where it is damaged or foreign;
// lowering takes from it what the kernels of a form can run by, and nothing else.
#include <gtest/gtest.h>

#include <set>

#include "driver/processor.h"
#include "driver/tuning_cache.h"
#include "ir/program/gpu_machine.h"
#include "support/staging.h"
#include "tests/lowered.h"

namespace optc {
namespace {

TuningCache sample() {
  TuningCache cache = tuning_of_here("cpu", 2);
  cache.forms = {{std::string(32, 'b'), "Conv \"3x3\" é", "conv.direct", "conv.winograd4", 12.5, 20.25, 0.031},
                 {std::string(32, 'a'), "", "conv.winograd2", "conv.winograd2", 1, 1, 0}};
  return cache;
}

std::string refusal(const std::string &text) {
  Diagnostics diagnostics;
  const auto cache = parse_tuning(text, "t.json", diagnostics);
  if (cache.ok()) return "";
  EXPECT_EQ(cache.failure().kind, ErrorKind::kUsage);
  EXPECT_EQ(diagnostics.all().size(), 1u) << text;
  return said(diagnostics);
}

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(TuningCache, IsReadBackAsItWasWritten) {
  const TuningCache cache = sample();
  const std::string text = print(cache);
  Diagnostics diagnostics;
  const auto back = parse_tuning(text, "t.json", diagnostics);
  ASSERT_TRUE(back.ok()) << said(diagnostics);
  EXPECT_EQ(print(*back), text);
  ASSERT_EQ(back->forms.size(), 2u);
  EXPECT_EQ(back->forms[0].form, std::string(32, 'a'));  // sorted
  EXPECT_EQ(back->forms[1].note, cache.forms[0].note);
  EXPECT_EQ(back->forms[1].way, "conv.direct");
  EXPECT_EQ(back->forms[1].model, "conv.winograd4");
  EXPECT_EQ(back->forms[1].microseconds, 12.5);
  EXPECT_EQ(back->forms[1].noise, 0.031);
  EXPECT_EQ(back->processor, processor_name());
  EXPECT_EQ(back->threads, 2);
}

TEST(TuningCache, RefusesWhatIsDamaged) {
  const std::string good = print(sample());
  EXPECT_EQ(refusal(good), "");
  for (size_t i = 0; i + 2 < good.size(); ++i) EXPECT_NE(refusal(good.substr(0, i)), "") << i;
  const auto with = [&](const std::string &from, const std::string &to) { return refusal(replaced(good, from, to)); };
  EXPECT_NE(with("\"forms\": [", "\"forms\": 7, \"f\": [").find("'forms' is no list"), std::string::npos);
  EXPECT_NE(with("\"optc tuning cache\"", "\"optc\"").find("'kind'"), std::string::npos);
  EXPECT_NE(with("\"threads\": 2", "\"threads\": 0").find("'threads'"), std::string::npos);
  EXPECT_NE(with("\"threads\": 2", "\"threads\": 1e300").find("'threads'"), std::string::npos);
  EXPECT_NE(with("\"target\": \"cpu\"", "\"target\": \"sm_1\"").find("'target' is not known"), std::string::npos);
  EXPECT_NE(with("\"way\":\"conv.direct\"", "\"way\":3").find("form 2: 'way' is no short text"), std::string::npos);
  EXPECT_NE(with("\"way\":\"conv.direct\",", "").find("form 2: 'way' is missing"), std::string::npos);
  EXPECT_NE(with("\"way\":\"conv.direct\"", "\"way\":\"\"").find("'way' is empty"), std::string::npos);
  EXPECT_NE(with("\"way\":\"conv.direct\"", "\"way\":\"a\\nb\"").find("'way' is no short text"), std::string::npos);
  EXPECT_NE(with("\"way\":\"conv.direct\"", "\"way\":\"" + std::string(500, 'x') + "\"").find("'way'"),
            std::string::npos);
  EXPECT_NE(with("\"microseconds\":12.5", "\"microseconds\":-1").find("'microseconds'"), std::string::npos);
  EXPECT_NE(with(std::string(32, 'b'), std::string(31, 'b')).find("hexadecimal"), std::string::npos);
  EXPECT_NE(with(std::string(32, 'b'), std::string(32, 'a')).find("it stands there twice"), std::string::npos);
}

TEST(TuningCache, IsBounded) {
  EXPECT_NE(refusal(std::string(17 << 20, ' ')).find("bytes"), std::string::npos);
  const std::string good = print(sample());
  // A million lists in one another.
  const std::string deep = replaced(good, "\"threads\": 2", "\"threads\": " + std::string(1000000, '['));
  EXPECT_NE(refusal(deep), "");
  const std::string closed =
      replaced(good, "\"threads\": 2", "\"threads\": " + std::string(1000000, '[') + std::string(1000000, ']'));
  EXPECT_NE(refusal(closed), "");
}

TEST(TuningCache, RefusesAnotherVersionAndAnotherMachine) {
  const std::string good = print(sample());
  const std::string version = "\"schedules\": " + std::to_string(kSchedulesVersion);
  EXPECT_NE(refusal(replaced(good, version, "\"schedules\": 999")).find("version 999 of the schedules, this optc has"),
            std::string::npos);
  ScratchFolder scratch;
  const std::string path = scratch.path() + "/t.json";
  TuningCache elsewhere = sample();
  elsewhere.processor = "Another 9000";
  Diagnostics diagnostics;
  ASSERT_TRUE(write_file(path, print(elsewhere), diagnostics).ok());
  const auto refused = load_tuning({path}, {"cpu"}, false, diagnostics);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.failure().kind, ErrorKind::kUsage);
  EXPECT_NE(said(diagnostics).find("measured on another machine: Another 9000"), std::string::npos)
      << said(diagnostics);
  const auto taken = load_tuning({path}, {"cpu"}, true, diagnostics);
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ((*taken)->ways.at(std::string(32, 'b')), "conv.direct");
  TuningCache card = tuning_of_here("sm_90a", 1);
  ASSERT_TRUE(write_file(path, print(card), diagnostics).ok());
  EXPECT_FALSE(load_tuning({path}, {"cpu", "sm_80"}, true, diagnostics).ok());
  EXPECT_FALSE(load_tuning({path}, {"cpu"}, true, diagnostics).ok());
  EXPECT_TRUE(load_tuning({path}, {"cpu", "sm_90a"}, false, diagnostics).ok());
}

// Two convolutions, the first with its activation behind it.
std::string conv(const std::string &name, const std::string &salt, int64_t channels, int64_t size) {
  const std::string c = std::to_string(channels), s = std::to_string(size);
  const std::string attributes =
      " {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints "
      "[1, 1], auto_pad = \"NOTSET\"}\n";
  return "graph \"" + name + "\" (" + name + ": f32[1," + c + "," + s + "," + s + "]) -> (y) {\n  const w: f32[" + c +
         "," + c + ",3,3] = hash \"" + salt + "\"\n  z = Conv(" + name + ", w)" + attributes +
         "  r = Relu(z)\n  y = Conv(r, w)" + attributes + "}";
}

// The choice of the first convolution.
const ScheduleChoice *choice_of(const Lowered &lowered) {
  for (const ScheduleChoice &c : lowered.report.choices)
    if (c.ranked.size() > 1) return &c;
  return nullptr;
}

std::set<std::string> names(const Program &program) {
  std::set<std::string> list;
  for (const Kernel &k : program.kernels)
    if (k.alive) list.insert(name(k.schedule));
  return list;
}

TEST(Tuning, ConvolutionsRunAsTheTableSays) {
  TuningTable table;
  LoweringOptions options;
  options.tuning = &table;
  const std::string text = conv("x", "a", 32, 12);
  const Lowered modelled = lower_text(text, options);
  const ScheduleChoice *choice = choice_of(modelled);
  ASSERT_TRUE(choice) << modelled.text;
  EXPECT_FALSE(choice->measured);
  ASSERT_EQ(choice->ranked.size(), 3u);
  EXPECT_EQ(choice->ranked[0].what, "conv.winograd4");
  const std::string form = choice->form;
  for (const std::string way : {"conv.winograd4", "conv.winograd2", "conv.direct"}) {
    table.ways = {{form, way}};
    const Lowered tuned = lower_text(text, options);
    EXPECT_TRUE(names(tuned.program).count(way)) << tuned.text;
    ASSERT_TRUE(choice_of(tuned));
    EXPECT_TRUE(choice_of(tuned)->measured);
    EXPECT_EQ(choice_of(tuned)->form, form);
    EXPECT_EQ(choice_of(tuned)->ranked[0].what, way);
    expect_same_results(
        tuned, [](const DimSymbol &) { return std::optional<int64_t>(); }, 1e-4);
  }
  // A step that is left out stays out.
  options.disabled = {"schedule.conv.direct"};
  const Lowered without = lower_text(text, options);
  EXPECT_TRUE(names(without.program).count("conv.winograd4")) << without.text;
  EXPECT_FALSE(choice_of(without)->measured);
}

TEST(Tuning, FormsAreOfWhatDecides) {
  TuningTable table;
  LoweringOptions options;
  options.tuning = &table;
  const auto form = [&](const std::string &text) {
    const Lowered lowered = lower_text(text, options);
    return choice_of(lowered) ? choice_of(lowered)->form : "";
  };
  const std::string first = form(conv("x", "a", 32, 12));
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(form(conv("other_name", "b", 32, 12)), first);
  EXPECT_NE(form(conv("x", "a", 32, 13)), first);
  EXPECT_NE(form(conv("x", "a", 48, 12)), first);
  const std::string tanh = replaced(conv("x", "a", 32, 12), "Relu", "Tanh");
  EXPECT_NE(form(tanh), first);
}

TEST(Tuning, RefusesAWayThatTheKernelHasNot) {
  TuningTable table;
  LoweringOptions options;
  options.tuning = &table;
  const std::string text = conv("x", "a", 32, 12);
  const Lowered modelled = lower_text(text, options);
  ASSERT_TRUE(choice_of(modelled));
  for (const std::string way : {"conv.depthwise", "gemm", "conv.winograd", ""}) {
    table.ways = {{choice_of(modelled)->form, way}};
    Diagnostics diagnostics;
    Result<Graph> graph = parse_graph(text, diagnostics);
    ASSERT_TRUE(graph.ok() && infer_graph(*graph, diagnostics).ok());
    LoweringReport report;
    const auto refused = lower(*graph, options, report, diagnostics);
    ASSERT_FALSE(refused.ok()) << way;
    EXPECT_EQ(refused.failure().kind, ErrorKind::kUsage);
    EXPECT_NE(said(diagnostics).find("run by '" + way + "', which it cannot"), std::string::npos) << said(diagnostics);
  }
}

TEST(Tuning, TilesOfAGpuAreThoseOfTheTable) {
  TuningTable table;
  LoweringOptions options;
  options.target = LoweringOptions::Target::kGpu;
  options.machine = &machine_of({"sm_90a"});
  options.warpgroups = true;
  options.tuning = &table;
  const std::string text = R"(graph "g" (x: f16[512,768]) -> (y) { const w: f16[768,3072] = hash "a"
      y = MatMul(x, w) })";
  const Lowered modelled = lower_text(text, options);
  const ScheduleChoice *choice = choice_of(modelled);
  ASSERT_TRUE(choice) << modelled.text;
  ASSERT_EQ(choice->ranked.size(), 8u);
  std::set<std::string> schedules;
  for (const ScheduleChoice::Way &way : choice->ranked) {
    table.ways = {{choice->form, way.what}};
    const Lowered tuned = lower_text(text, options);
    ASSERT_TRUE(choice_of(tuned));
    EXPECT_EQ(choice_of(tuned)->ranked[0].what, way.what);
    EXPECT_TRUE(choice_of(tuned)->measured);
    schedules.insert(tuned.text);
  }
  EXPECT_EQ(schedules.size(), 8u);  // each another one
}

}  // namespace
}  // namespace optc
