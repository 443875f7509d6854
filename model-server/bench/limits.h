/* limits.h - what this machine can do, measured in the same run as what we do: figures are ratios.
 */
#ifndef MODEL_SERVER_BENCH_LIMITS_H
#define MODEL_SERVER_BENCH_LIMITS_H
#include "common/err.h"
#include <stddef.h>

/* Bytes per second that `threads` threads read from `bytes` of memory (more than any cache holds),
 * each its own part, as several streams with prefetch; best of `rounds`. < 0: out of memory or
 * threads, `e` says. */
double limit_read_bandwidth(int threads, size_t bytes, int rounds, struct err *e);

/* Single-precision multiply-adds per second, as two operations each, of `threads` threads with the
 * widest vectors there are; best of `rounds`. 0: not known for this CPU; < 0 as above. */
double limit_fp32(int threads, int rounds, struct err *e);
#endif
