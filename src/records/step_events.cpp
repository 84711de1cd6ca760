#include "records/step_events.h"

namespace lockstep {

void put(ByteWriter& w, const StepEvents& events) {
  w.put(events.step);
  w.put<uint64_t>(events.admitted.size());
  for (const Request& request : events.admitted) put(w, request);
  w.put_vector(events.sampled);
  w.put(events.drained);
  w.put(events.stop);
}

StepEvents get_step_events(ByteReader& r) {
  StepEvents events;
  events.step = r.get<int64_t>();
  const auto n = r.get<uint64_t>();
  for (uint64_t i = 0; i < n; ++i) events.admitted.push_back(get_request(r));
  events.sampled = r.get_vector<StepEvents::Token>();
  events.drained = r.get<bool>();
  events.stop = r.get<bool>();
  return events;
}

}  // namespace lockstep
