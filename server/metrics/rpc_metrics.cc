#include "server/metrics/rpc_metrics.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "espalier/v1/sparsification_service.pb.h"
#include "espalier/v1/worker_service.pb.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/support/server_interceptor.h"

namespace espalier {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

// As Go's library spells them.
const char* CodeName(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {
      "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
      "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
      "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
      "DataLoss", "Unauthenticated"};
  const auto i = static_cast<size_t>(code);
  return i < std::size(kNames) ? kNames[i] : "Unknown";
}

std::string TypeName(bool client_streams, bool server_streams) {
  if (client_streams) return server_streams ? "bidi_stream" : "client_stream";
  return server_streams ? "server_stream" : "unary";
}

Metrics::Values LabelsOf(const ServerRpcInfo& info) {
  using Type = ServerRpcInfo::Type;
  const Type type = info.type();
  absl::string_view method = info.method();
  absl::ConsumePrefix(&method, "/");
  const size_t slash = method.find('/');
  return {TypeName(type == Type::CLIENT_STREAMING || type == Type::BIDI_STREAMING,
                   type == Type::SERVER_STREAMING || type == Type::BIDI_STREAMING),
          std::string(method.substr(0, slash)),
          slash == absl::string_view::npos ? "" : std::string(method.substr(slash + 1))};
}

// Lives as long as the RPC.
class RpcMeter final : public grpc::experimental::Interceptor {
 public:
  RpcMeter(Metrics& metrics, Metrics::Values labels) : metrics_(metrics), labels_(std::move(labels)) {
    metrics_.Count(metric::kGrpcStarted, labels_);
  }
  ~RpcMeter() override {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    metrics_.Observe(metric::kGrpcSeconds, elapsed.count(), labels_);
    labels_.emplace_back(CodeName(code_));
    metrics_.Count(metric::kGrpcHandled, labels_);
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      code_ = methods->GetSendStatus().error_code();
    }
    methods->Proceed();
  }

 private:
  Metrics& metrics_;
  Metrics::Values labels_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  // Without a status of ours the client has gone before.
  grpc::StatusCode code_ = grpc::StatusCode::CANCELLED;
};

class MeterFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit MeterFactory(Metrics& metrics) : metrics_(metrics) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new RpcMeter(metrics_, LabelsOf(*info));  // NOLINT: gRPC owns it
  }

 private:
  Metrics& metrics_;
};

// Series of our own methods at 0, so that a first failure is a rate.
void CreateSeries(Metrics& metrics, const google::protobuf::FileDescriptor& file) {
  for (int s = 0; s < file.service_count(); ++s) {
    const google::protobuf::ServiceDescriptor& service = *file.service(s);
    for (int m = 0; m < service.method_count(); ++m) {
      const google::protobuf::MethodDescriptor& method = *service.method(m);
      const Metrics::Values labels = {TypeName(method.client_streaming(), method.server_streaming()),
                                      service.full_name(), method.name()};
      metrics.Create(metric::kGrpcStarted, labels);
      Metrics::Values handled = labels;
      handled.emplace_back("OK");
      metrics.Create(metric::kGrpcHandled, handled);
    }
  }
}

}  // namespace

void MeasureRpcs(grpc::ServerBuilder& builder, Metrics& metrics) {
  CreateSeries(metrics, *v1::CreateRunRequest::descriptor()->file());
  CreateSeries(metrics, *v1::Hello::descriptor()->file());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<MeterFactory>(metrics));
  builder.experimental().SetInterceptorCreators(std::move(factories));
}

}  // namespace espalier
