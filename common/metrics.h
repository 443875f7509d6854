/* metrics.h - a registry of rows: counters, gauges and histograms, printed as Prometheus text.
 *
 * The rows are a program's table (router/metrics.def); a row with a label has one series per value
 * seen, created at first use. Updates are lock-free and may come from any thread; a histogram's
 * count, sum and buckets may be read mid-update by at most one observation. */
#ifndef COMMON_METRICS_H
#define COMMON_METRICS_H
#include "common/buf.h"
#include "common/err.h"
#include <stdint.h>

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
struct metric_row {
    const char *name; /* "tgi_request_count" */
    enum metric_type type;
    const char *label; /* label name, NULL: none; at most 16 values per label are kept */
    const char *help;
    double first, factor; /* HISTOGRAM bounds: first * factor^i (factor > 1), or first * (i + 1)
                             (factor == 0) */
    uint32_t n_bounds;
};

struct metrics;
struct metrics *metrics_new(const struct metric_row *rows,
                            uint32_t n); /* rows must outlive it; NULL: oom */
void metrics_free(struct metrics *m);

/* `row` is the index in the table, `value` of the label NULL for rows without one. */
void metrics_add(struct metrics *m, uint32_t row, const char *label_value, double v); /* counter */
void metrics_set(struct metrics *m, uint32_t row, const char *label_value, double v); /* gauge */
/* Several writers of one gauge, which is their sum: each has its shares. A writer's own thread. */
enum { METRIC_SHARES = 32 };
struct metric_shares { /* zero: nothing yet */
    struct {
        uint32_t row;
        const char *label;
        double v;
    } v[METRIC_SHARES];
    uint32_t n;
};
/* The writer's part of the gauge is `v` now. `label_value` lives as long as `s`. */
void metrics_share(struct metrics *m, struct metric_shares *s, uint32_t row,
                   const char *label_value, double v);
void metrics_unshare(struct metrics *m, struct metric_shares *s); /* all its parts are 0 */
void metrics_observe(struct metrics *m, uint32_t row, const char *label_value, double v);
/* The series of a label value is there from now on, as 0: Prometheus' rate() does not see the first
 * event of a series that appears with it. */
void metrics_expect(struct metrics *m, uint32_t row, const char *label_value);
/* Prometheus text format 0.0.4. Rows never touched are printed too (as 0), unlike TGI: a dashboard
 * should not see a series appear out of nothing. */
void metrics_print(const struct metrics *m, struct buf *out);

/* A row under another project's name, whose tools look for it. */
enum metric_part {
    METRIC_ALL, /* the row as it is */
    METRIC_SUM, /* a histogram's sum, as a counter */
};
struct metric_alias {
    const char *name;
    uint32_t row;
    enum metric_part part;
};
/* The same text for `n` aliases. `labels` stand in every series: "a=\"b\",c=\"d\"", values escaped;
 * "": none. */
void metrics_print_aliases(const struct metrics *m, const struct metric_alias *a, uint32_t n,
                           const char *labels, struct buf *out);
/* Appends `s` as the value of a label stands between its quotes. */
void metrics_escape(struct buf *out, const char *s);
#endif
