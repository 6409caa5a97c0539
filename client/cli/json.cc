#include "client/cli/json.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/errors.h"

namespace espalier::cli {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

// RunType::RUN_TYPE_TRAIN -> TRAIN
std::string EnumName(const EnumValueDescriptor& value) {
  std::string prefix;
  for (const char c : value.type()->name()) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  prefix += '_';
  return absl::StartsWith(value.name(), prefix) ? value.name().substr(prefix.size()) : value.name();
}

Json StatusToJson(const v1::Status& proto) {
  const absl::Status status = FromProto(proto);
  Json metadata = Json::object();
  if (const auto info = ErrorInfoOf(status)) {
    for (const auto& [key, value] :
         std::map<std::string, std::string>(info->metadata().begin(), info->metadata().end())) {
      metadata[key] = value;
    }
  }
  return {{"code", absl::StatusCodeToString(status.code())},
          {"reason", ReasonName(status)},
          {"message", std::string(status.message())},
          {"metadata", std::move(metadata)}};
}

Json MessageToJson(const Message& message);

Json ValueToJson(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& get = *message.GetReflection();
  const bool repeated = index >= 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? get.GetRepeatedInt32(message, &field, index) : get.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return repeated ? get.GetRepeatedInt64(message, &field, index) : get.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return repeated ? get.GetRepeatedUInt32(message, &field, index) : get.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return repeated ? get.GetRepeatedUInt64(message, &field, index) : get.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return repeated ? get.GetRepeatedDouble(message, &field, index) : get.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return repeated ? get.GetRepeatedFloat(message, &field, index) : get.GetFloat(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return repeated ? get.GetRepeatedBool(message, &field, index) : get.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(*(repeated ? get.GetRepeatedEnum(message, &field, index) : get.GetEnum(message, &field)));
    case FieldDescriptor::CPPTYPE_STRING:
      return repeated ? get.GetRepeatedString(message, &field, index) : get.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(repeated ? get.GetRepeatedMessage(message, &field, index) : get.GetMessage(message, &field));
  }
  return nullptr;
}

Json MessageToJson(const Message& message) {
  if (const auto* time = dynamic_cast<const google::protobuf::Timestamp*>(&message)) {
    return google::protobuf::util::TimeUtil::ToString(*time);
  }
  if (const auto* duration = dynamic_cast<const google::protobuf::Duration*>(&message)) {
    return static_cast<double>(google::protobuf::util::TimeUtil::DurationToNanoseconds(*duration)) / 1e9;
  }
  if (const auto* status = dynamic_cast<const v1::Status*>(&message)) return StatusToJson(*status);
  Json out = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.is_map()) {
      Json map = Json::object();
      for (int j = 0; j < message.GetReflection()->FieldSize(message, &field); ++j) {
        const Json entry = MessageToJson(message.GetReflection()->GetRepeatedMessage(message, &field, j));
        map[entry.at("key").get<std::string>()] = entry.at("value");
      }
      out[field.name()] = std::move(map);
    } else if (field.is_repeated()) {
      Json list = Json::array();
      for (int j = 0; j < message.GetReflection()->FieldSize(message, &field); ++j) {
        list.push_back(ValueToJson(message, field, j));
      }
      out[field.name()] = std::move(list);
    } else if (!field.has_presence() || message.GetReflection()->HasField(message, &field)) {
      out[field.name()] = ValueToJson(message, field, -1);
    }
  }
  return out;
}

}  // namespace

Json ToJson(const Message& message) {
  return MessageToJson(message);
}

std::string Pretty(const Json& json) {
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

std::string OneLine(const Json& json) {
  return absl::StrCat(json.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
}

}  // namespace espalier::cli
