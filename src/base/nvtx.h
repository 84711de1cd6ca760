// Names for what a rank is doing, on the time line of Nsight Systems. Builds without CUDA have the type and it does nothing;
// without a profiler a range costs a few nanoseconds.
//   NvtxRange range("schedule"); ... range.next("forward"); ...
#pragma once

#ifdef LOCKSTEP_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace lockstep {

// Ranges of one thread lie within each other: the inner one ends first.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name) { begin(name); }
  ~NvtxRange() { end(); }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
  void next(const char* name) {
    end();
    begin(name);
  }

 private:
#ifdef LOCKSTEP_NVTX
  static void begin(const char* name) { nvtxRangePushA(name); }
  static void end() { nvtxRangePop(); }
#else
  static void begin(const char*) {}
  static void end() {}
#endif
};

}  // namespace lockstep
