// See kernels.h; the compiler's flags for this file are set in CMakeLists.txt.
#define LOCKSTEP_ISA 0
#include "ops/cpu/kernels_all.inc"
