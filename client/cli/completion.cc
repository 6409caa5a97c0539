#include "client/cli/completion.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace espalier::cli {
namespace {

enum class Kind { kFlag, kText, kFile, kDirectory, kChoice };

struct Argument {
  // "--model", "-o"; empty for a positional one.
  std::vector<std::string> names;
  Kind kind = Kind::kFlag;
  // Of a positional one: any number of them.
  bool repeated = false;
  std::vector<std::string> choices;
  std::string hint;
  std::string description;
};

struct Command {
  std::string name;
  std::string description;
  std::vector<Argument> options;
  std::vector<Argument> positionals;
};

Argument Describe(const CLI::Option& option) {
  Argument argument;
  for (const std::string& name : option.get_lnames()) argument.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) argument.names.push_back("-" + name);
  argument.description = option.get_description();
  if (option.get_items_expected_max() == 0) return argument;
  argument.repeated = option.get_positional() && option.get_items_expected_max() > 1;
  // The name of the type, then what validators say of themselves: MODE:{a,b}.
  const std::string type = option.get_type_name();
  argument.hint = type.substr(0, type.find(':'));
  const size_t open = type.find('{');
  if (argument.hint == "DIR") {
    argument.kind = Kind::kDirectory;
  } else if (argument.hint == "PATH" || argument.hint == "FILE" || argument.hint == "RECIPE") {
    argument.kind = Kind::kFile;
  } else if (open != std::string::npos) {
    argument.kind = Kind::kChoice;
    argument.choices = absl::StrSplit(type.substr(open + 1, type.find('}', open) - open - 1), ',');
  } else {
    argument.kind = Kind::kText;
    if (argument.hint == "HOST") argument.hint = "HOST:PORT";
  }
  return argument;
}

std::vector<Command> Describe(const CLI::App& app) {
  std::vector<Command> commands;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    Command command{sub->get_name(), sub->get_description(), {}, {}};
    for (const CLI::Option* option : sub->get_options()) {
      Argument argument = Describe(*option);
      (argument.names.empty() ? command.positionals : command.options).push_back(std::move(argument));
    }
    commands.push_back(std::move(command));
  }
  return commands;
}

// Words for single quotes of a shell.
std::string Quoted(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}});
}

// compgen arguments that complete one argument; empty: nothing is known.
std::string Compgen(const Argument& argument) {
  switch (argument.kind) {
    case Kind::kFile:
      return "-f";
    case Kind::kDirectory:
      return "-d";
    case Kind::kChoice:
      return absl::StrCat("-W '", absl::StrJoin(argument.choices, " "), "'");
    default:
      return "";
  }
}

// ":hint:action" of zsh's _arguments.
std::string ZshAction(const Argument& argument) {
  const std::string hint = absl::StrReplaceAll(argument.hint, {{":", "\\:"}});
  switch (argument.kind) {
    case Kind::kFlag:
      return "";
    case Kind::kFile:
      return absl::StrCat(":", hint, ":_files");
    case Kind::kDirectory:
      return absl::StrCat(":", hint, ":_files -/");
    case Kind::kChoice:
      return absl::StrCat(":", hint, ":(", absl::StrJoin(argument.choices, " "), ")");
    case Kind::kText:
      return absl::StrCat(":", hint, ": ");
  }
  return "";
}

std::string ZshText(absl::string_view text) {
  return Quoted(absl::StrReplaceAll(text, {{"[", "("}, {"]", ")"}, {":", "\\:"}, {"`", ""}}));
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  const std::vector<Command> commands = Describe(app);
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  std::string values;
  std::string options;
  std::string positionals;
  for (const Command& command : commands) {
    std::vector<std::string> words;
    for (const Argument& argument : command.options) {
      words.insert(words.end(), argument.names.begin(), argument.names.end());
      if (argument.kind == Kind::kFlag) continue;
      const std::string generate = Compgen(argument);
      const auto join = [&](std::string* out, const std::string& name) {
        absl::StrAppend(out, command.name, ":", name);
      };
      absl::StrAppend(
          &values, "    ", absl::StrJoin(argument.names, "|", join), ")",
          generate.empty() ? "" : absl::StrCat(" mapfile -t COMPREPLY < <(compgen ", generate, " -- \"$cur\");"),
          " return ;;\n");
    }
    absl::StrAppend(&options, "    ", command.name, ") words='", absl::StrJoin(words, " "), "' ;;\n");
    for (const Argument& argument : command.positionals) {
      const std::string generate = Compgen(argument);
      if (generate.empty()) continue;
      absl::StrAppend(&positionals, "    ", command.name, ") mapfile -t COMPREPLY < <(compgen ", generate,
                      " -- \"$cur\") ;;\n");
    }
  }
  return absl::StrCat(
      "# bash completion of espalier; made by `espalier completion bash`\n"
      "_espalier() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= words= i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    if [[ ${COMP_WORDS[i]} != -* ]]; then command=${COMP_WORDS[i]}; break; fi\n"
      "  done\n"
      "  if [[ -z $command ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W '",
      absl::StrJoin(names, " "),
      " --help --version' -- \"$cur\")\n"
      "    return\n"
      "  fi\n"
      "  # The value of an option.\n"
      "  case $command:$prev in\n",
      values,
      "  esac\n"
      "  case $command in\n",
      options,
      "  esac\n"
      "  if [[ $cur == -* ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
      "    return\n"
      "  fi\n"
      "  case $command in\n",
      positionals,
      "  esac\n"
      "}\n"
      "complete -o filenames -F _espalier espalier\n");
}

std::string ZshCompletion(const CLI::App& app) {
  std::string list;
  std::string cases;
  for (const Command& command : Describe(app)) {
    absl::StrAppend(&list, "    '", command.name, ":", ZshText(command.description), "'\n");
    absl::StrAppend(&cases, "    ", command.name, ")\n      _arguments");
    for (const Argument& argument : command.options) {
      for (const std::string& name : argument.names) {
        absl::StrAppend(&cases, " \\\n        '", name, "[", ZshText(argument.description), "]", ZshAction(argument),
                        "'");
      }
    }
    for (const Argument& argument : command.positionals) {
      absl::StrAppend(&cases, " \\\n        '", argument.repeated ? "*" : "", ZshAction(argument), "'");
    }
    absl::StrAppend(&cases, "\n      ;;\n");
  }
  return absl::StrCat(
      "#compdef espalier\n"
      "# zsh completion of espalier; made by `espalier completion zsh`\n"
      "_espalier() {\n"
      "  local -a commands\n"
      "  commands=(\n",
      list,
      "  )\n"
      "  if ((CURRENT == 2)); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  ((CURRENT--))\n"
      "  case $command in\n",
      cases,
      "  esac\n"
      "}\n"
      "_espalier \"$@\"\n");
}

}  // namespace espalier::cli
