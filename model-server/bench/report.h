/* report.h - what `model-server bench` measured, as a table for people or as JSON for programs. The
 * JSON's keys are a promise (docs/benchmarks.md): `schema` changes where one changes its meaning.
 */
#ifndef MODEL_SERVER_BENCH_REPORT_H
#define MODEL_SERVER_BENCH_REPORT_H
#include "common/buf.h"
#include "model-server/bench/steps.h"

struct bench_report {
    const char *model, *device, *quantize;
    bool random;
    enum dtype dtype;
    enum kv_dtype kv_dtype;
    int threads;
    double load_s;
    uint64_t weight_bytes, kv_bytes, rss_bytes, load_peak_bytes;
    double read_limit, fp32_limit; /* bytes, operations per second; 0: not measured */
    uint32_t rounds;
};
struct bench_result {
    struct bench_case of;
    struct bench_times s;
    double bytes, ops; /* that a round reads and computes, from the shapes */
};

/* Bytes of weights and of the KV cache, and operations, of one round of the case out->of. */
void bench_work(const struct model *m, enum kv_dtype kv_dtype, struct bench_result *out);
/* Resident bytes of this process now and at most so far; 0 where the system does not say. */
void bench_memory(uint64_t *now, uint64_t *peak);

void bench_print_json(struct buf *out, const struct bench_report *r, const struct bench_result *v,
                      size_t n);
void bench_print_table(struct buf *out, const struct bench_report *r, const struct bench_result *v,
                       size_t n);
#endif
