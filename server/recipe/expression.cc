#include "server/recipe/expression.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace espalier {
namespace {

bool IsNameStart(char c) {
  return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_';
}

bool IsDigit(char c) {
  return absl::ascii_isdigit(static_cast<unsigned char>(c));
}

const std::vector<std::string>& FunctionNames() {
  static const auto* names = new std::vector<std::string>{"abs", "ceil", "eval", "floor", "max", "min", "round"};
  return *names;
}

// Recursive descent. Each method leaves `mistake_` alone and returns a value, or sets failed_ and returns anything.
class Evaluator {
 public:
  Evaluator(absl::string_view text, Variables& variables, Mistake& mistake)
      : rest_(text), variables_(variables), mistake_(mistake) {}

  std::optional<Scalar> Run() {
    Scalar value = Sum();
    if (!failed_ && !Peek().empty()) Fail(absl::StrCat("cannot read ", Quote(rest_)));
    if (failed_) return std::nullopt;
    return value;
  }

 private:
  // Counts one level of nesting.
  class Level {
   public:
    explicit Level(Evaluator& evaluator) : depth_(evaluator.variables_.depth) {
      if (++depth_ > kMaxExpressionDepth) {
        evaluator.Fail(absl::StrCat("expressions and variables are nested more than ", kMaxExpressionDepth, " deep"));
      }
    }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };

  void Fail(absl::string_view what, absl::string_view suggestion = "") {
    if (failed_) return;
    failed_ = true;
    mistake_ = {std::string(what), std::string(suggestion)};
  }

  absl::string_view Peek() {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    return rest_;
  }

  bool Take(absl::string_view token) {
    if (Peek().substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  // A number out of `value`, for arithmetic.
  Rational Number(const Scalar& value) {
    if (!failed_ && value.kind != Scalar::Kind::kNumber) {
      Fail(absl::StrCat("cannot compute with ", value.Describe()));
    }
    return value.number;
  }

  Scalar Result(std::optional<Rational> number) {
    if (failed_) return {};
    if (++variables_.operations > kMaxOperations) {
      Fail(absl::StrCat("the recipe computes more than ", kMaxOperations, " operations"));
    } else if (!number) {
      Fail("a result is too large or too fine to be computed exactly");
    } else {
      return Scalar::OfNumber(*std::move(number));
    }
    return {};
  }

  Scalar Sum() {
    Scalar left = Product();
    while (!failed_) {
      const bool add = Take("+");
      if (!add && !Take("-")) break;
      const Scalar right = Product();
      const Rational a = Number(left);
      const Rational b = Number(right);
      left = Result(add ? Rational::Add(a, b) : Rational::Subtract(a, b));
    }
    return left;
  }

  Scalar Product() {
    Scalar left = Signed();
    while (!failed_) {
      char operation = 0;
      if (Take("//")) {
        operation = 'f';
      } else if (Take("*")) {
        operation = '*';
      } else if (Take("/")) {
        operation = '/';
      } else if (Take("%")) {
        operation = '%';
      } else {
        break;
      }
      const Scalar right = Signed();
      left = Multiply(Number(left), operation, Number(right));
    }
    return left;
  }

  Scalar Multiply(const Rational& a, char operation, const Rational& b) {
    if (failed_) return {};
    if (operation == '*') return Result(Rational::Multiply(a, b));
    if (b.zero()) {
      Fail("division by zero");
      return {};
    }
    const std::optional<Rational> quotient = Rational::Divide(a, b);
    if (operation == '/' || !quotient) return Result(quotient);
    const std::optional<Rational> floor = Rational::Of(quotient->Floor(), 1);
    if (operation == 'f' || !floor) return Result(floor);
    const std::optional<Rational> whole = Rational::Multiply(*floor, b);
    return Result(whole ? Rational::Subtract(a, *whole) : std::nullopt);
  }

  Scalar Signed() {
    const Level level(*this);
    if (failed_) return {};
    if (Take("-")) {
      const Scalar value = Signed();
      return Result(-Number(value));
    }
    if (Take("+")) {
      const Scalar value = Signed();
      return Result(Number(value));
    }
    return Power();
  }

  Scalar Power() {
    Scalar base = Atom();
    if (failed_ || !Take("**")) return base;
    const Rational exponent = Number(Signed());
    const Rational value = Number(base);
    if (failed_) return {};
    if (!exponent.whole()) {
      Fail(absl::StrCat("an exponent is a whole number, not ", exponent.ToString()));
      return {};
    }
    if (value.zero() && exponent.sign() < 0) {
      Fail("division by zero");
      return {};
    }
    const std::optional<int64_t> whole = exponent.numerator().ToInt64();
    return Result(whole ? Rational::Power(value, *whole) : std::nullopt);
  }

  Scalar Atom() {
    if (failed_) return {};
    if (Take("(")) {
      Scalar value = Sum();
      if (!failed_ && !Take(")")) Fail("a `)` is missing");
      return value;
    }
    const absl::string_view text = Peek();
    if (text.empty()) {
      Fail("the expression ends too early");
    } else if (IsNameStart(text[0])) {
      return Name();
    } else if (IsDigit(text[0]) || text[0] == '.') {
      return Literal();
    } else {
      Fail(absl::StrCat("cannot read ", Quote(text)));
    }
    return {};
  }

  Scalar Literal() {
    size_t end = 0;
    const auto digits = [&] {
      while (end < rest_.size() && IsDigit(rest_[end])) ++end;
    };
    digits();
    if (end < rest_.size() && rest_[end] == '.') ++end;
    digits();
    if (end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
      ++end;
      if (end < rest_.size() && (rest_[end] == '+' || rest_[end] == '-')) ++end;
      digits();
    }
    const absl::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end);
    const std::optional<Rational> number = Rational::Parse(text);
    if (!number) {
      Fail(absl::StrCat("cannot read the number ", Quote(text)));
      return {};
    }
    return Scalar::OfNumber(*number);
  }

  Scalar Name() {
    size_t end = 0;
    while (end < rest_.size() && (IsNameStart(rest_[end]) || IsDigit(rest_[end]))) ++end;
    const std::string name(rest_.substr(0, end));
    rest_.remove_prefix(end);
    if (Take("(")) return Call(name);
    Mistake inner;
    std::optional<Scalar> value = variables_.Lookup(name, inner.what, inner.suggestion);
    if (!value) Fail(inner.what, inner.suggestion);
    return value.value_or(Scalar());
  }

  Scalar Call(const std::string& name) {
    if (!absl::c_linear_search(FunctionNames(), name)) {
      Fail(absl::StrCat("there is no function ", Quote(name), "; there are ", absl::StrJoin(FunctionNames(), ", ")),
           ClosestName(name, FunctionNames()));
      return {};
    }
    std::vector<Scalar> values;
    if (!Take(")")) {
      do {
        values.push_back(Sum());
      } while (!failed_ && Take(","));
      if (!failed_ && !Take(")")) Fail(absl::StrCat("a `)` is missing after the arguments of ", Quote(name)));
    }
    if (failed_) return {};
    if (name == "eval" && values.size() == 1) return values[0];
    std::vector<Rational> numbers;
    numbers.reserve(values.size());
    for (const Scalar& value : values) numbers.push_back(Number(value));
    if (failed_) return {};
    return Apply(name, numbers);
  }

  Scalar Apply(const std::string& name, const std::vector<Rational>& numbers) {
    if ((name == "min" || name == "max") && !numbers.empty()) {
      return Result(name == "min" ? *absl::c_min_element(numbers) : *absl::c_max_element(numbers));
    }
    if (name == "round" && numbers.size() == 2) return Round(numbers[0], numbers[1]);
    if (numbers.size() != 1 || name == "min" || name == "max") {
      Fail(absl::StrCat(Quote(name), " does not take ", numbers.size(), " arguments"));
      return {};
    }
    if (name == "abs") return Result(numbers[0].Abs());
    if (name == "floor") return Result(Rational::Of(numbers[0].Floor(), 1));
    if (name == "ceil") return Result(Rational::Of(numbers[0].Ceil(), 1));
    return Result(Rational::Of(numbers[0].RoundHalfEven(), 1));
  }

  Scalar Round(const Rational& number, const Rational& places) {
    constexpr int64_t kMaxPlaces = 30;
    const std::optional<int64_t> count = places.whole() ? places.numerator().ToInt64() : std::nullopt;
    if (!count || *count < 0 || *count > kMaxPlaces) {
      Fail(absl::StrCat("`round` takes 0 to ", kMaxPlaces, " decimal places, not ", places.ToString()));
      return {};
    }
    return Result(number.Round(static_cast<int>(*count)));
  }

  absl::string_view rest_;
  Variables& variables_;
  Mistake& mistake_;
  bool failed_ = false;
};

}  // namespace

std::optional<Scalar> EvaluateExpression(absl::string_view text, Variables& variables, Mistake& mistake) {
  if (text.size() > kMaxExpressionLength) {
    mistake.what =
        absl::StrCat("an expression has at most ", kMaxExpressionLength, " characters, this one has ", text.size());
    return std::nullopt;
  }
  return Evaluator(text, variables, mistake).Run();
}

}  // namespace espalier
