#include "client/cli/progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/interrupt.h"
#include "client/cli/text.h"

namespace espalier::cli {
namespace {

constexpr absl::Duration kRedraw = absl::Milliseconds(50);
constexpr absl::Duration kPlainLine = absl::Seconds(10);
constexpr int kLabelWidth = 12;
constexpr int kAmountWidth = 21;
constexpr int kTimeWidth = 10;
constexpr int kMaxBar = 36;
constexpr int kMinBar = 8;

constexpr char kHideCursor[] = "\x1b[?25l";
constexpr char kShowCursor[] = "\x1b[?25h";
constexpr char kEraseLine[] = "\r\x1b[2K";
constexpr char kGreen[] = "\x1b[32m";
constexpr char kDim[] = "\x1b[2m";
constexpr char kPlain[] = "\x1b[0m";

std::string Repeat(absl::string_view piece, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) absl::StrAppend(&out, piece);
  return out;
}

}  // namespace

Progress::Progress(std::ostream& out, const Terminal& terminal, std::function<absl::Duration()> now)
    : out_(out), terminal_(terminal), now_(std::move(now)) {}

Progress::~Progress() {
  End(false);
}

void Progress::Line(absl::string_view text) {
  Erase();
  out_ << std::string(text) << "\n";
  if (open_ && terminal_.interactive) Draw();
  out_.flush();
}

void Progress::Step(absl::string_view label, int64_t done, int64_t total, absl::string_view unit) {
  if (open_ && label != label_) End(true);
  if (!open_) {
    open_ = true;
    label_ = std::string(label);
    began_ = now_();
    shown_ = began_;
    if (terminal_.interactive) {
      CursorHidden(true);
      out_ << kHideCursor;
      done_ = done;
      total_ = total;
      unit_ = std::string(unit);
      Draw();
      return;
    }
  }
  done_ = done;
  total_ = total;
  unit_ = std::string(unit);
  Tick();
}

void Progress::Tick() {
  if (!open_ || now_() - shown_ < (terminal_.interactive ? kRedraw : kPlainLine)) return;
  shown_ = now_();
  if (terminal_.interactive) {
    Draw();
    return;
  }
  const std::string amount = Amount(false);
  out_ << absl::StrCat(label_, ": ", amount.empty() ? "running" : amount, " after ", Seconds(shown_ - began_), "\n");
  out_.flush();
}

void Progress::End(bool complete) {
  if (!open_) return;
  open_ = false;
  if (complete && total_ > 0) done_ = total_;
  if (terminal_.interactive) {
    out_ << kEraseLine << Bar(complete) << "\n" << kShowCursor;
    CursorHidden(false);
    drawn_ = false;
  } else if (complete) {
    out_ << absl::StrCat(label_, ": ", Amount(true), " in ", Seconds(now_() - began_), "\n");
  } else {
    const std::string amount = Amount(false);
    out_ << absl::StrCat(label_, ": stopped", amount.empty() ? "" : " at ", amount, "\n");
  }
  out_.flush();
}

std::string Progress::Amount(bool complete) const {
  const auto text = [this](int64_t value) { return unit_ == "bytes" ? Bytes(value) : Thousands(value); };
  if (unit_.empty()) return complete ? "done" : "";
  const std::string suffix = unit_ == "bytes" ? "" : absl::StrCat(" ", unit_);
  if (total_ <= 0 || complete) return absl::StrCat(text(std::max(done_, total_)), suffix);
  return absl::StrCat(text(done_), " / ", text(total_), suffix);
}

std::string Progress::Bar(bool complete) const {
  const std::string elapsed = Seconds(now_() - began_);
  const std::string amount = Amount(complete);
  const int amount_width = std::max(kAmountWidth, static_cast<int>(DisplayWidth(amount)));
  // Two spaces, label, space, bar, two spaces, amount, two spaces, time; the last column of the line stays free.
  const int room = terminal_.width - 1 - 2 - kLabelWidth - 1 - 2 - amount_width - 2 - kTimeWidth;
  const int width = std::clamp(room, kMinBar, kMaxBar);
  const double share = total_ > 0 ? std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0)
                       : complete ? 1.0
                                  : 0.0;
  const int filled = static_cast<int>(share * width);
  const std::string left = Repeat(terminal_.utf8 ? "━" : "=", filled);
  const std::string right = Repeat(terminal_.utf8 ? "─" : "-", width - filled);
  const int pad = amount_width - static_cast<int>(DisplayWidth(amount));
  const std::string head = absl::StrFormat("  %-*s ", kLabelWidth, label_);
  if (room < kMinBar) {
    // Too narrow for a bar.
    return Truncate(absl::StrCat(head, amount, "  ", elapsed), static_cast<size_t>(std::max(1, terminal_.width - 1)));
  }
  const bool color = terminal_.color;
  return absl::StrCat(head, color ? kGreen : "", left, color ? kPlain : "", color ? kDim : "", right,
                      color ? kPlain : "", "  ", amount, std::string(static_cast<size_t>(pad), ' '), "  ",
                      color ? kDim : "", elapsed, color ? kPlain : "");
}

void Progress::Draw() {
  out_ << kEraseLine << Bar(false);
  out_.flush();
  drawn_ = true;
}

void Progress::Erase() {
  if (drawn_) out_ << kEraseLine;
  drawn_ = false;
}

}  // namespace espalier::cli
