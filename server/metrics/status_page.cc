#include "server/metrics/status_page.h"

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/util/time_util.h"
#include "server/run/run_states.h"

namespace espalier {
namespace {

using google::protobuf::util::TimeUtil;

constexpr std::chrono::seconds kPatience{5};
constexpr size_t kMaxBars = 400;

constexpr char kStyle[] = R"(
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;margin:1.5rem auto;max-width:70rem;padding:0 1rem}
h1{font-size:1.3rem;margin:0}h2{font-size:1.05rem;margin:1.8rem 0 .4rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #8884;vertical-align:top}
th{font-weight:600}td.n,th.n{text-align:right}
.muted{color:#777}.bad{color:#c62828}.good{color:#2e7d32}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:.4rem 0}dt{color:#777}dd{margin:0;overflow-wrap:anywhere}
svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:currentColor}
)";

// Text in HTML, also inside of attributes.
std::string Escape(absl::string_view text) {
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
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Thousands(int64_t value) {
  std::string digits = absl::StrCat(value);
  for (auto at = static_cast<int>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

std::string Percent(double part, double whole) {
  return absl::StrFormat("%.2f %%", whole > 0 ? 100 * part / whole : 0.0);
}

absl::Time TimeOf(const google::protobuf::Timestamp& stamp) {
  return absl::FromUnixNanos(TimeUtil::TimestampToNanoseconds(stamp));
}

std::string Ago(absl::Duration passed) {
  passed = std::max(passed, absl::ZeroDuration());
  if (passed < absl::Minutes(2)) return absl::StrFormat("%.0f s ago", absl::ToDoubleSeconds(passed));
  if (passed < absl::Hours(2)) return absl::StrFormat("%.0f min ago", absl::ToDoubleMinutes(passed));
  if (passed < absl::Hours(48)) return absl::StrFormat("%.0f h ago", absl::ToDoubleHours(passed));
  return absl::StrFormat("%.0f d ago", absl::ToDoubleHours(passed) / 24);
}

std::string StateCell(absl::string_view state) {
  const char* kind = state == "FAILED" || state == "LOST" || state == "SUSPECT" ? " class=\"bad\""
                     : state == "SUCCEEDED" || state == "IDLE"                  ? " class=\"good\""
                                                                                : "";
  return absl::StrCat("<td", kind, ">", state, "</td>");
}

std::string Link(const std::string& run) {
  return absl::StrCat("<a href=\"/?run=", Escape(run), "\">", Escape(run), "</a>");
}

void AddRuns(std::string& out, const Snapshot& snapshot, absl::Time now) {
  absl::StrAppend(&out, "<h2>Runs</h2>");
  if (snapshot.runs.empty()) {
    absl::StrAppend(&out, "<p class=\"muted\">None yet: <code>espalier submit</code> makes one.</p>");
    return;
  }
  absl::StrAppend(&out,
                  "<table><tr><th>run</th><th>state</th><th class=\"n\">updates</th><th class=\"n\">sparsity</th>",
                  "<th>made</th><th>model</th><th>why</th></tr>");
  for (const v1::Run& run : snapshot.runs) {
    absl::StrAppend(&out, "<tr><td>", Link(run.name()), "</td>", StateCell(StateName(run.state())), "<td class=\"n\">",
                    run.updates_done(), " / ", run.updates_total(), "</td><td class=\"n\">",
                    run.has_sparsity() ? absl::StrFormat("%.2f %%", run.sparsity().sparsity_percent()) : "",
                    "</td><td>", Ago(now - TimeOf(run.create_time())), "</td><td>", Escape(run.model_path()),
                    "</td><td>", Escape(run.has_error() ? run.error().message() : run.state_reason()), "</td></tr>");
  }
  absl::StrAppend(&out, "</table>");
  if (snapshot.runs_in_all > snapshot.runs.size()) {
    absl::StrAppend(&out, "<p class=\"muted\">and ", snapshot.runs_in_all - snapshot.runs.size(),
                    " older: <code>espalier runs</code></p>");
  }
}

void AddWorkers(std::string& out, const Snapshot& snapshot) {
  absl::StrAppend(&out, "<h2>Workers</h2>");
  if (snapshot.workers.empty()) {
    absl::StrAppend(&out, "<p class=\"muted\">None: start <code>espalier-worker</code> and point it here.</p>");
    return;
  }
  absl::StrAppend(&out, "<table><tr><th>worker</th><th>state</th><th>run</th><th class=\"n\">rank</th><th>host</th>",
                  "<th>device</th><th>last heard</th><th>activity</th></tr>");
  for (const v1::Worker& worker : snapshot.workers) {
    const absl::Duration silent = absl::Nanoseconds(TimeUtil::DurationToNanoseconds(worker.since_heartbeat()));
    const absl::string_view state = v1::Worker::State_Name(worker.state());
    absl::StrAppend(&out, "<tr><td>", Escape(worker.name()), "</td>", StateCell(absl::StripPrefix(state, "STATE_")),
                    "<td>", worker.run().empty() ? "" : Link(worker.run()), "</td><td class=\"n\">",
                    worker.rank() < 0 ? "" : absl::StrCat(worker.rank()), "</td><td>", Escape(worker.host()),
                    "</td><td>", Escape(worker.device()), "</td><td>", Ago(silent), "</td><td>",
                    Escape(worker.activity().empty() ? worker.state_reason() : worker.activity()), "</td></tr>");
  }
  absl::StrAppend(&out, "</table>");
}

// One bar: a layer, or a parameter that is in none.
struct Bar {
  std::string name;
  int64_t zeros = 0;
  int64_t masked = 0;
  int64_t elements = 0;
};

// "model.layers.7" of "model.layers.7.mlp.up_proj.weight": up to the first number; a name without one is its own layer.
std::string LayerOf(absl::string_view parameter) {
  const std::vector<absl::string_view> parts = absl::StrSplit(parameter, '.');
  std::string out;
  for (const absl::string_view part : parts) {
    absl::StrAppend(&out, out.empty() ? "" : ".", part);
    if (!part.empty() && std::all_of(part.begin(), part.end(), absl::ascii_isdigit)) return out;
  }
  return std::string(parameter);
}

// "layers.10" after "layers.9".
std::pair<std::string, int64_t> Place(const std::string& layer) {
  const size_t dot = layer.rfind('.');
  int64_t number = -1;
  if (dot == std::string::npos || !absl::SimpleAtoi(layer.substr(dot + 1), &number)) return {layer, -1};
  return {layer.substr(0, dot), number};
}

std::vector<Bar> BarsOf(const std::vector<v1::ParameterSparsity>& rows) {
  std::map<std::pair<std::string, int64_t>, Bar> layers;
  for (const v1::ParameterSparsity& row : rows) {
    if (!row.prunable() && row.masked() == 0) continue;
    const std::string layer = LayerOf(row.name());
    Bar& bar = layers[Place(layer)];
    bar.name = layer;
    bar.zeros += row.zeros();
    bar.masked += row.masked();
    bar.elements += row.numel();
  }
  std::vector<Bar> bars;
  for (auto& [place, bar] : layers) bars.push_back(std::move(bar));
  return bars;
}

void AddBars(std::string& out, const std::vector<v1::ParameterSparsity>& rows) {
  std::vector<Bar> bars = BarsOf(rows);
  if (bars.empty()) return;
  constexpr int kRow = 18, kLeft = 300, kWide = 420, kRight = 260;
  const size_t shown = std::min(bars.size(), kMaxBars);
  absl::StrAppendFormat(&out,
                        "<h2>Sparsity by layer</h2><svg role=\"img\" aria-label=\"Sparsity by layer\" width=\"%d\" "
                        "viewBox=\"0 0 %d %d\">",
                        kLeft + kWide + kRight, kLeft + kWide + kRight, static_cast<int>(shown) * kRow + 4);
  for (size_t i = 0; i < shown; ++i) {
    const Bar& bar = bars[i];
    const int y = static_cast<int>(i) * kRow;
    const double share = bar.elements > 0 ? static_cast<double>(bar.zeros) / static_cast<double>(bar.elements) : 0;
    std::string name = bar.name;
    if (name.size() > 44) name = absl::StrCat("...", name.substr(name.size() - 41));
    absl::StrAppendFormat(
        &out,
        "<g><title>%s: %s of %s zero, %s masked</title>"
        "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>"
        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"12\" fill=\"#8883\"/>"
        "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"12\" fill=\"#3f7f5f\"/>"
        "<text x=\"%d\" y=\"%d\">%s of %s</text></g>",
        Escape(bar.name), Thousands(bar.zeros), Thousands(bar.elements), Thousands(bar.masked), kLeft - 8, y + 14,
        Escape(name), kLeft, y + 4, kWide, kLeft, y + 4, share * kWide, kLeft + kWide + 8, y + 14,
        Percent(static_cast<double>(bar.zeros), static_cast<double>(bar.elements)), Thousands(bar.elements));
  }
  absl::StrAppend(&out, "</svg>");
  if (bars.size() > shown) {
    absl::StrAppend(&out, "<p class=\"muted\">and ", bars.size() - shown, " more: <code>espalier report</code></p>");
  }
}

void AddRun(std::string& out, const Snapshot& snapshot, absl::Time now) {
  const v1::Run& run = snapshot.run;
  absl::StrAppend(&out, "<h2>", Escape(run.name()), "</h2><dl>");
  const auto item = [&](absl::string_view name, absl::string_view text) {
    if (!text.empty()) absl::StrAppend(&out, "<dt>", name, "</dt><dd>", Escape(text), "</dd>");
  };
  item("state", absl::StrCat(StateName(run.state()), run.state_reason().empty() ? "" : ": ", run.state_reason()));
  if (run.has_error()) item("error", run.error().message());
  item("made", Ago(now - TimeOf(run.create_time())));
  item("model", run.model_path());
  item("output", run.output_path());
  item("workers", absl::StrCat(run.workers_size(), " of ", run.world_size()));
  item("plan",
       absl::StrCat(Thousands(snapshot.plan.pruned_parameters()), " of ", Thousands(snapshot.plan.model_parameters()),
                    " parameters, ", Thousands(snapshot.plan.pruned_elements()), " of ",
                    Thousands(snapshot.plan.model_elements()), " elements"));
  for (const v1::PlannedStage& stage : snapshot.plan.stages()) item("stage", stage.name());
  item("updates", absl::StrCat(run.updates_done(), " of ", run.updates_total(), ", mask version ", run.mask_version()));
  const v1::RunProgress& progress = snapshot.progress;
  // A run that is held is at work on nothing: what was told last is over.
  const bool held = run.state() == v1::Run::STATE_RUNNING && !run.state_reason().empty();
  if (!progress.phase().empty() && !held) {
    item("now",
         absl::StrCat(progress.phase(), ": ", Thousands(progress.done()), " of ", Thousands(progress.total()), " ",
                      progress.unit(), " (",
                      Percent(static_cast<double>(progress.done()), static_cast<double>(progress.total())), ")"));
  }
  if (run.has_sparsity()) {
    const v1::SparsitySummary& sums = run.sparsity();
    item("sparsity", absl::StrCat(absl::StrFormat("%.4f %%: ", sums.sparsity_percent()), Thousands(sums.sparse()),
                                  " of ", Thousands(sums.total()), " are zero, ", Thousands(sums.masked()), " masked"));
    item("prunable", absl::StrFormat("%.4f %%", sums.prunable_sparsity_percent()));
  }
  absl::StrAppend(&out, "</dl>");
  AddBars(out, snapshot.rows);
}

// %41 and + as browsers send them; what is malformed stays as it is.
std::string DecodeUrl(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    uint32_t code = 0;
    if (text[i] == '%' && i + 2 < text.size() && absl::SimpleHexAtoi(text.substr(i + 1, 2), &code)) {
      out += static_cast<char>(code);
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

}  // namespace

std::string RenderStatus(const Snapshot& snapshot, absl::Time now) {
  std::string out = absl::StrCat(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Espalier</title>"
      "<meta name=\"viewport\" content=\"width=device-width\"><style>",
      kStyle, "</style></head><body><h1>Espalier</h1><p class=\"muted\">version ", ESPALIER_VERSION, ", ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", now, absl::UTCTimeZone()), snapshot.draining ? ", shutting down" : "",
      ", <a href=\"/metrics\">metrics</a></p>");
  AddRuns(out, snapshot, now);
  if (!snapshot.run.name().empty()) AddRun(out, snapshot, now);
  AddWorkers(out, snapshot);
  absl::StrAppend(&out, "</body></html>\n");
  return out;
}

HttpReply ServeStatus(EventLoop& loop, const Coordinator& coordinator, absl::string_view query) {
  std::string run;
  for (const absl::string_view part : absl::StrSplit(query, '&')) {
    absl::string_view value = part;
    if (absl::ConsumePrefix(&value, "run=")) run = DecodeUrl(value);
  }
  // The loop may answer after this call has given up.
  const auto answer = std::make_shared<std::promise<Snapshot>>();
  std::future<Snapshot> snapshot = answer->get_future();
  loop.Post([answer, run, &coordinator] { answer->set_value(coordinator.TakeSnapshot(run)); });
  if (snapshot.wait_for(kPatience) != std::future_status::ready) {
    return {.status = 503, .body = "the coordinator does not answer; see its log\n"};
  }
  const Snapshot taken = snapshot.get();
  if (!run.empty() && taken.run.name().empty()) {
    return {.status = 404, .body = absl::StrCat("there is no run ", run, "\n")};
  }
  return {.content_type = "text/html; charset=utf-8", .body = RenderStatus(taken, loop.clock().Wall())};
}

}  // namespace espalier
