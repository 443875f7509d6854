/* lanes.h - what the vector_*.inc.h have in common: a vector has 16 lanes on every CPU. */
#ifndef MODEL_SERVER_BACKEND_HOST_LANES_H
#define MODEL_SERVER_BACKEND_HOST_LANES_H
#include <stddef.h>
#include <stdint.h>

enum { LANES = 16 };

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#endif
