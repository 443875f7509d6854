/* watch.h - where the time of a step goes: a table of operations that times another one's, if they
 * are through when they return (the CPU), or what the device reports of its launches (CUDA). */
#ifndef MODEL_SERVER_BENCH_WATCH_H
#define MODEL_SERVER_BENCH_WATCH_H
#include "common/buf.h"
#include "model-server/backend/backend.h"

/* `ops` with a clock around each operation of a step. One at a time: what it found is the
 * program's. */
const struct backend_ops *watch_ops(const struct backend_ops *ops);
/* Discards what was found until now, such as the model's warm-up. */
void watch_reset(void);
/* A line of a table for each operation, products apart by their weights' size: microseconds and
 * calls of a step, GB/s of weights; then what lies between the operations. */
void watch_print(struct buf *out);
#endif
