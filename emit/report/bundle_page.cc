#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "emit/report/report.h"

namespace optc {
namespace {

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string bytes_text(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  const char *units[] = {"KiB", "MiB", "GiB", "TiB"};
  int unit = -1;
  while (bytes >= 1024 && unit < 3) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.3g} {}", bytes, units[unit]);
}

std::string count_text(double count) {
  const char *units[] = {"", " k", " M", " G", " T"};
  int unit = 0;
  while (count >= 1000 && unit < 4) {
    count /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}", count) : fmt::format("{:.3g}{}", count, units[unit]);
}

// Sizes at which symbolic costs are shown: the least value of each symbol that its bounds allow, at least 1.
std::optional<int64_t> at_least_sizes(Dim d) {
  const auto value =
      evaluate(d, [](const DimSymbol &s) -> std::optional<int64_t> { return std::max<int64_t>(s.min, s.multiple); });
  return value && *value < kDimOverflow ? value : std::nullopt;
}

std::string dim_cell(Dim d, bool bytes) {
  const auto value = at_least_sizes(d);
  if (!value) return fmt::format("<td>{}</td>", escape(d.str()));
  const std::string text = bytes ? bytes_text(static_cast<double>(*value)) : count_text(static_cast<double>(*value));
  return fmt::format("<td class=n data-v={} title=\"{}\">{}</td>", *value, escape(d.str()), text);
}

constexpr std::string_view kStyle = R"(
:root{--ink:#1c2430;--soft:#5b6675;--line:#dde3ea;--paper:#fff;--tint:#f4f7fa;--accent:#0b62a4;--b0:#4c8ec4;--b1:#e0a03c;--b2:#5fa777;--b3:#b46fb0}
@media (prefers-color-scheme:dark){:root{--ink:#e3e8ee;--soft:#9aa7b6;--line:#323b47;--paper:#161b22;--tint:#1d242d;--accent:#6cb2ee}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:76rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin:0}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}p{margin:.3rem 0}
.soft{color:var(--soft)}code{font:13px ui-monospace,monospace}
.facts{display:flex;flex-wrap:wrap;gap:.8rem;margin:1.2rem 0}
.facts div{background:var(--tint);border:1px solid var(--line);border-radius:6px;padding:.5rem .9rem}
.facts b{display:block;font-size:1.25rem}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th{text-align:left;color:var(--soft);font-weight:600;cursor:pointer;position:sticky;top:0;background:var(--paper)}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
th{overflow-wrap:normal}a{color:var(--accent)}
table.sort th::after{content:" \2195";opacity:.35}table.sort th[data-d="1"]::after{content:" \2191";opacity:1}
table.sort th[data-d="-1"]::after{content:" \2193";opacity:1}
td.n,th.n{text-align:right;white-space:nowrap}td.w{white-space:nowrap}
input{font:inherit;padding:.3rem .5rem;border:1px solid var(--line);border-radius:5px;background:var(--tint);color:inherit;width:20rem;max-width:100%}
svg{width:100%;height:auto;background:var(--tint);border:1px solid var(--line);border-radius:6px}
rect.b:hover{stroke:var(--ink);stroke-width:1.5}
)";

constexpr std::string_view kScript = R"(
for(const t of document.querySelectorAll('table.sort'))t.querySelectorAll('th').forEach((h,c)=>h.onclick=()=>{
const d=h.dataset.d=='1'?'-1':'1',b=t.tBodies[0],k=r=>{const e=r.cells[c];return e.dataset.v?+e.dataset.v:e.textContent};
[...b.rows].sort((x,y)=>{const p=k(x),q=k(y);return(typeof p=='number'&&typeof q=='number'?p-q:String(p).localeCompare(String(q)))*d}).forEach(r=>b.append(r));
t.querySelectorAll('th').forEach(o=>delete o.dataset.d);h.dataset.d=d});
const f=document.getElementById('filter');if(f)f.oninput=()=>{const w=f.value.toLowerCase();
let n=0;for(const r of document.querySelectorAll('#kernels tbody tr'))n+=!(r.hidden=!r.textContent.toLowerCase().includes(w));
document.getElementById('shown').textContent=w?n+' of ':''};
)";

void fact(std::string &html, std::string_view value, std::string_view what) {
  html += fmt::format("<div><b>{}</b>{}</div>", escape(value), escape(what));
}

void signature(std::string &html, const Program &p) {
  html += "<h2>Signature</h2><table><thead><tr><th></th><th>name</th><th>type</th></tr></thead><tbody>";
  for (size_t i = 0; i < p.inputs.size(); ++i)
    html += fmt::format("<tr><td>input</td><td><code>{}</code></td><td><code>{}</code></td></tr>",
                        escape(p.input_names[i]), escape(to_string(p.buffer(p.inputs[i]).type)));
  for (size_t i = 0; i < p.outputs.size(); ++i)
    html += fmt::format("<tr><td>output</td><td><code>{}</code></td><td><code>{}</code></td></tr>",
                        escape(p.output_names[i]), escape(to_string(p.buffer(p.outputs[i]).type)));
  html += "</tbody></table>";
}

// The entries for some sizes alone, in the order in which they are tried.
void variants(std::string &html, const ReportInput &in) {
  if (in.variants.empty()) return;
  html +=
      "<h2>Variants</h2><p class=soft>Code of its own for some sizes; what none of them takes runs in the general "
      "code, which the rest of this page shows.</p><table><thead><tr><th>sizes</th><th class=n>kernels</th><th "
      "class=n>arena</th></tr></thead><tbody>";
  for (const ReportInput::Variant &v : in.variants)
    html +=
        fmt::format("<tr><td><code>{}</code></td><td class=n>{}</td><td class=n>{}</td></tr>", escape(v.sizes),
                    v.program->order.size(),
                    v.memory->arena_bytes < 0 ? "by the dims" : bytes_text(static_cast<double>(v.memory->arena_bytes)));
  html += "</tbody></table>";
}

void rewrites(std::string &html, const ReportInput &in) {
  html += "<h2>What the optimizer did</h2>";
  const auto rules = summarize_rules(*in.records);
  if (rules.empty()) html += "<p>No rule applied.</p>";
  if (!rules.empty()) {
    html +=
        "<table class=sort><thead><tr><th class=n>count</th><th>rule</th><th>class</th><th class=n>nodes removed</th>"
        "<th class=n>created</th><th>for example at</th></tr></thead><tbody>";
    for (const RuleSummary &r : rules)
      html += fmt::format(
          "<tr><td class=n data-v={0}>{0}</td><td class=w><code>{1}</code></td><td class=w>{2}</td><td class=n "
          "data-v={3}>{3}</td>"
          "<td class=n data-v={4}>{4}</td><td><code>{5}</code></td></tr>",
          r.count, escape(r.rule), to_string(r.numerics), r.removed, r.created, escape(r.example));
    html += "</tbody></table>";
  }
  const auto missed = summarize_missed(*in.missed);
  if (missed.empty()) return;
  html +=
      "<h2>What it did not do, and why</h2><table class=sort><thead><tr><th "
      "class=n>count</th><th>rule</th><th>reason</th>"
      "<th>for example at</th></tr></thead><tbody>";
  for (const MissedSummary &m : missed)
    html += fmt::format(
        "<tr><td class=n data-v={0}>{0}</td><td "
        "class=w><code>{1}</code></td><td>{2}</td><td><code>{3}</code></td></tr>",
        m.count, escape(m.rule), escape(m.reason), escape(m.example));
  html += "</tbody></table>";
}

std::string origins_text(const Program &p, const Kernel &kernel) {
  std::string text;
  size_t shown = 0;
  for (const uint32_t id : kernel.origin) {
    if (shown++ == 4) {
      text += fmt::format(" … {} more", kernel.origin.size() - 4);
      break;
    }
    text += fmt::format("{}{} ({})", shown == 1 ? "" : ", ", p.origins[id].name, p.origins[id].op);
  }
  return text;
}

std::string kind_of(const Kernel &kernel) {
  if (const LibraryCall *call = kernel.library()) return "library: " + call->function;
  if (kernel.control()) return "control flow";
  return name(kernel.schedule).empty() ? "loops" : name(kernel.schedule);
}

// Kernels in the order of execution, those of bodies behind the construct that runs them.
void in_order(const Program &p, const std::vector<KernelId> &order, std::vector<KernelId> &all) {
  for (const KernelId id : order) {
    all.push_back(id);
    if (const ControlFlow *control = p.kernel(id).control())
      for (const std::vector<KernelId> &body : control->bodies) in_order(p, body, all);
  }
}

void kernels(std::string &html, const Program &p, const std::vector<KernelId> &all) {
  html += fmt::format(
      "<h2>Kernels</h2><p><input id=filter placeholder=\"filter by name, operator, strategy\"> "
      "<span class=soft><span id=shown></span>{} in the order of execution; FLOPs and bytes are for the least dims "
      "that "
      "the model allows, the formula is shown where the mouse rests</span></p>"
      "<table id=kernels class=sort><thead><tr><th class=n>#</th><th>kernel</th><th>strategy</th><th class=n>FLOPs</th>"
      "<th class=n>read</th><th class=n>written</th><th>from</th></tr></thead><tbody>",
      all.size());
  size_t number = 0;
  for (const KernelId id : all) {
    const Kernel &k = p.kernel(id);
    html += fmt::format(
        "<tr><td class=n data-v={0}>{0}</td><td><code>{1}</code><br><span "
        "class=soft>{2}</span></td><td>{3}</td>{4}{5}{6}<td>{7}</td></tr>",
        number++, escape(k.name), escape(k.note), escape(kind_of(k)), dim_cell(k.cost.flops, false),
        dim_cell(k.cost.bytes_read, true), dim_cell(k.cost.bytes_written, true), escape(origins_text(p, k)));
  }
  html += "</tbody></table>";
}

// The GPU's Program: where each kernel runs and why, and what is copied before it.
void placement(std::string &html, const ReportInput &in) {
  if (!in.gpu_program || !in.gpu_schedule || !in.gpu_forms) return;
  const Program &p = *in.gpu_program;
  const DeviceSchedule &schedule = *in.gpu_schedule;
  const auto on_gpu = std::count_if(schedule.segment.begin(), schedule.segment.end(), [](int s) { return s >= 0; });
  html += fmt::format(
      "<h2>On a GPU</h2><p class=soft>{} of {} kernels, in {}; between the two memories: {} copies, inputs "
      "and "
      "outputs included</p><table class=sort><thead><tr><th class=n>#</th><th>kernel</th><th>runs on</th><th>as, or "
      "why "
      "not</th><th>copied before it</th></tr></thead><tbody>",
      on_gpu, p.order.size(),
      schedule.segments == 1 ? "one segment of launches" : fmt::format("{} segments of launches", schedule.segments),
      schedule.copy_count());
  auto copies = [&](size_t position) {
    std::string text;
    for (const DeviceCopy &copy : schedule.copies[position])
      text += fmt::format("{}{} to the {}", text.empty() ? "" : ", ", p.buffer(copy.buffer).name,
                          copy.to_device ? "GPU" : "CPU");
    return escape(text);
  };
  for (size_t i = 0; i < p.order.size(); ++i) {
    const bool gpu = schedule.segment[i] >= 0;
    html += fmt::format(
        "<tr><td class=n data-v={0}>{0}</td><td><code>{1}</code></td><td>{2}</td><td>{3}</td><td>{4}</td></tr>", i,
        escape(p.kernel(p.order[i]).name), gpu ? "GPU" : "CPU", escape(gpu ? (*in.gpu_forms)[i] : schedule.reason[i]),
        copies(i));
  }
  html += "</tbody></table>";
  if (const std::string last = copies(p.order.size()); !last.empty())
    html += "<p class=soft>At the end: " + last + "</p>";
}

// Buffers of the arena: across, the kernels; up, the addresses.
void memory(std::string &html, const Program &p, const MemoryPlan &plan) {
  if (plan.items.empty() || plan.arena_bytes == 0) return;
  if (plan.arena_bytes < 0) {
    html += fmt::format(
        "<h2>Memory</h2><p>{} buffers lie in one arena. Its size depends on the dims of the inputs; the runtime places "
        "the buffers when those change.</p>",
        plan.items.size());
    return;
  }
  html += fmt::format(
      "<h2>Memory</h2><p>The arena takes {} for one thread, the largest sum of live bytes is {}; each box is a buffer: "
      "across, from the kernel that writes it to the last that reads it; up, its place.</p>",
      bytes_text(static_cast<double>(plan.arena_bytes)), bytes_text(static_cast<double>(plan.lower_bound_bytes)));
  constexpr double kWidth = 1200, kHeight = 360;
  const double steps = std::max<double>(1, static_cast<double>(p.order.size()));
  html += fmt::format("<svg viewBox=\"0 0 {} {}\" role=img aria-label=\"buffers over time\">", kWidth, kHeight);
  size_t color = 0;
  for (const MemoryPlan::Item &place : plan.items) {
    const int64_t size = place.bytes.value();
    if (size <= 0) continue;
    const double x = kWidth * static_cast<double>(place.first) / steps;
    const double w = std::max(1.0, kWidth * static_cast<double>(place.last + 1 - place.first) / steps);
    const double h = kHeight * static_cast<double>(size) / static_cast<double>(plan.arena_bytes);
    const double y = kHeight - kHeight * static_cast<double>(place.offset) / static_cast<double>(plan.arena_bytes) - h;
    html += fmt::format(
        "<rect class=b x={:.2f} y={:.2f} width={:.2f} height={:.2f} fill=\"var(--b{})\" fill-opacity=.75><title>{}: {} "
        "at {}, "
        "kernels {} to {}</title></rect>",
        x, y, w, std::max(h, 0.5), color++ % 4, escape(place.name), bytes_text(static_cast<double>(size)), place.offset,
        place.first, place.last);
  }
  html += "</svg>";
}

// The tensors that stayed f32, by reason.
void kept_table(std::string &html, const std::vector<std::pair<std::string, std::string>> &kept) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const auto &[name, why] : kept) by_reason[why].push_back(name);
  html += "<table class=sort><thead><tr><th>why</th><th class=n>tensors</th><th>which</th></tr></thead><tbody>";
  for (const auto &[why, names] : by_reason) {
    std::string list;
    for (size_t i = 0; i < names.size() && i < 6; ++i) list += (i == 0 ? "" : ", ") + names[i];
    if (names.size() > 6) list += ", ...";
    html += fmt::format("<tr><td>{}</td><td class=n data-v={}>{}</td><td><code>{}</code></td></tr>", escape(why),
                        names.size(), names.size(), escape(list));
  }
  html += "</tbody></table>";
}

// What --precision made of the tensors, on the CPU and on the GPU: the two Programs are fused differently.
void storage(std::string &html, const ReportInput &in) {
  if (in.precision == ElementType::kFloat32) return;
  html += fmt::format(
      "<h2>Storage in {0}</h2><p>f32 tensors are stored in {0}, arithmetic is f32; inputs and outputs keep their "
      "types. "
      "Class: approximating, allowed difference 2e-2 of an output's range. On the CPU these stay f32:</p>",
      to_string(in.precision));
  kept_table(html, in.kept);
  if (!in.gpu_program) return;
  html += "<p>On the GPU these stay f32:</p>";
  kept_table(html, in.gpu_kept);
}

// What --quantize-weights made of the weights of products.
void quantized_weights(std::string &html, const QuantizedWeights &made) {
  if (made.format.empty()) return;
  std::vector<std::pair<std::string, std::string>> kept;
  std::string rows;
  int64_t before = 0, after = 0, count = 0;
  for (const QuantizedWeights::Weight &w : made.weights) {
    if (w.stored.empty()) {
      kept.emplace_back(w.name, w.kept);
      continue;
    }
    ++count;
    before += w.bytes_before;
    after += w.bytes;
    rows += fmt::format(
        "<tr><td><code>{}</code></td><td>{}</td><td class=n data-v={}>{}</td><td class=n data-v={}>{}</td></tr>",
        escape(w.name), escape(w.stored), w.bytes_before, bytes_text(static_cast<double>(w.bytes_before)), w.bytes,
        bytes_text(static_cast<double>(w.bytes)));
  }
  html += fmt::format(
      "<h2>Weights in {}</h2><p>{} of {} weights of products are rounded, {} → {}; arithmetic is that of the "
      "dequantized weights{}.{}</p>",
      escape(made.format), count, made.weights.size(), bytes_text(static_cast<double>(before)),
      bytes_text(static_cast<double>(after)),
      made.activations == 0
          ? ""
          : fmt::format(" and, in {} products, of activations that are rounded to 8 bits in the same blocks",
                        made.activations),
      made.cost.empty() ? "" : fmt::format(" What that changes: {}.", escape(made.cost)));
  if (!rows.empty())
    html +=
        "<table class=sort><thead><tr><th>weight</th><th>stored as</th><th class=n>before</th><th "
        "class=n>bytes</th></tr></thead><tbody>" +
        rows + "</tbody></table>";
  if (kept.empty()) return;
  html += "<p>These stay as they were:</p>";
  kept_table(html, kept);
}

}  // namespace

std::string report_html(const ReportInput &in) {
  const Program &p = *in.program;
  std::string html =
      "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\">"
      "<meta http-equiv=Content-Security-Policy content=\"default-src 'none';style-src 'unsafe-inline';script-src "
      "'unsafe-inline'\">";
  html += fmt::format("<title>{}: optc report</title><style>{}</style></head><body>", escape(in.name), kStyle);
  std::string targets;
  for (const std::string &target : in.targets) targets += (targets.empty() ? "" : ", ") + target;
  html +=
      fmt::format("<h1>{}</h1><p class=soft>compiled by optc {} from {} (xxh3 {}) for {}</p><div class=facts>",
                  escape(in.name), escape(in.version), escape(in.model), escape(p.info.source_hash), escape(targets));
  fact(html, fmt::format("{} → {}", in.nodes_before, in.nodes_after), "nodes, before and after the optimizer");
  std::vector<KernelId> all;
  in_order(p, p.order, all);
  fact(html, std::to_string(all.size()), "kernels");
  std::map<std::string, int64_t> by_kind;
  for (const KernelId id : all) ++by_kind[kind_of(p.kernel(id))];
  if (in.memory->arena_bytes >= 0) fact(html, bytes_text(static_cast<double>(in.memory->arena_bytes)), "arena");
  fact(html, bytes_text(static_cast<double>(in.weight_bytes)), "weights, as laid out");
  html += "</div><p class=soft>";
  bool first = true;
  for (const auto &[kind, count] : by_kind) {
    html += fmt::format("{}{} {}", first ? "" : ", ", count, escape(kind));
    first = false;
  }
  html += "</p>";
  html +=
      "<p><a href=graph.html>The graph before and after the optimizer, drawn</a>: which rule made each change, "
      "which kernel each node became.</p>";
  signature(html, p);
  variants(html, in);
  rewrites(html, in);
  storage(html, in);
  quantized_weights(html, in.weights);
  memory(html, p, *in.memory);
  kernels(html, p, all);
  placement(html, in);
  html += fmt::format("<script>{}</script></body></html>\n", kScript);
  return html;
}

}  // namespace optc
