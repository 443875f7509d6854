/* metrics.h - a registry of counters, gauges and histograms, printed in Prometheus text format.
 *
 * The rows are a program's table (router/metrics.h). A row with a label has one series per value,
 * created at first use. Updates are lock-free, from any thread. A reader may see a histogram whose
 * count, sum and buckets differ by one observation in progress. */
#ifndef COMMON_METRICS_H
#define COMMON_METRICS_H
#include "common/buf.h"
#include "common/err.h"
#include <stdint.h>

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
struct metric_row {
    const char *name; /* "tgi_request_count" */
    enum metric_type type;
    const char *label; /* label name; NULL: none; at most 16 values per label */
    const char *help;
    /* HISTOGRAM bounds: first * factor^i (factor > 1), or first * (i + 1) (factor == 0) */
    double first, factor;
    uint32_t n_bounds;
};

struct metrics;
/* rows must outlive it; NULL: out of memory */
struct metrics *metrics_new(const struct metric_row *rows, uint32_t n);
void metrics_free(struct metrics *m);

/* `row`: index in the table; `label_value`: NULL for rows without a label. */
void metrics_add(struct metrics *m, uint32_t row, const char *label_value, double v); /* counter */
void metrics_set(struct metrics *m, uint32_t row, const char *label_value, double v); /* gauge */
/* A gauge that is the sum of several writers' shares. Each writer uses its own thread. */
enum { METRIC_SHARES = 32 };
struct metric_shares { /* zero-initialise */
    struct {
        uint32_t row;
        const char *label;
        double v;
    } v[METRIC_SHARES];
    uint32_t n;
};
/* Sets the writer's share of the gauge to `v`. `label_value` must live as long as `s`. */
void metrics_share(struct metrics *m, struct metric_shares *s, uint32_t row,
                   const char *label_value, double v);
void metrics_unshare(struct metrics *m, struct metric_shares *s); /* sets all its shares to 0 */
void metrics_observe(struct metrics *m, uint32_t row, const char *label_value, double v);
/* Creates the series of a label value with value 0: Prometheus' rate() misses the first event of a
 * series that appears with it. */
void metrics_expect(struct metrics *m, uint32_t row, const char *label_value);
/* Prints Prometheus text format 0.0.4. Unlike TGI, untouched rows are printed as 0, so that series
 * do not appear suddenly. */
void metrics_print(const struct metrics *m, struct buf *out);

/* A row under another project's name, for tools that expect it. */
enum metric_part {
    METRIC_ALL, /* the row unchanged */
    METRIC_SUM, /* a histogram's sum, as a counter */
};
struct metric_alias {
    const char *name;
    uint32_t row;
    enum metric_part part;
};
/* Prints `n` aliases in the same format. `labels` are added to every series: "a=\"b\",c=\"d\"",
 * with escaped values; "": none. */
void metrics_print_aliases(const struct metrics *m, const struct metric_alias *a, uint32_t n,
                           const char *labels, struct buf *out);
/* Appends `s` escaped as a label value. */
void metrics_escape(struct buf *out, const char *s);
#endif
