#pragma once

// For the files of Coordinator alone.

#include <functional>
#include <string>
#include <utility>

#include "server/run/coordinator.h"

namespace espalier {

template <typename Request, typename Response>
void Coordinator::Mutate(absl::string_view method, const Request& request, Reply<Response> reply,
                         std::function<void(const RowsOf<Response>& rows_of, Reply<Response> done)> execute) {
  const absl::Status ready = Ready();
  if (!ready.ok()) return reply(ready);
  const std::string id = request.request_id();
  Request payload = request;
  payload.clear_request_id();
  const RequestLedger::Reply parse = [reply](const absl::StatusOr<std::string>& answer) {
    if (!answer.ok()) return reply(answer.status());
    Response response;
    response.ParseFromString(*answer);
    reply(std::move(response));
  };
  if (!ledger_.Begin(method, id, payload.SerializeAsString(), parse)) return;
  const RowsOf<Response> rows_of = [this, id](std::function<Response(const v1::Run&)> answer) -> ExtraRows {
    return [this, id, answer = std::move(answer)](const v1::Run& run) {
      return ledger_.Row(id, answer(run).SerializeAsString());
    };
  };
  execute(rows_of, [this, id, parse](absl::StatusOr<Response> response) {
    ledger_.Finish(id, response.ok() ? absl::StatusOr<std::string>(response->SerializeAsString()) : response.status(),
                   parse);
  });
}

}  // namespace espalier
