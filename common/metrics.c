#include "common/metrics.h"
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 16, SLOTS = MAX_VALUES + 1 }; /* the last slot collects further values */

/* A double with atomic addition, which C17 lacks. */
struct cell {
    _Atomic uint64_t bits;
};

struct series {
    _Atomic(char *) label;    /* NULL: free slot; rows without a label use slot 0 with label NULL */
    struct cell value;        /* counter, gauge; histogram: the sum */
    _Atomic uint64_t *bucket; /* histogram: observations per bucket, n_bounds + 1 of them */
};

struct metric {
    const struct metric_row *row;
    double *bound;
    struct series s[SLOTS];
};

struct metrics {
    uint32_t n;
    struct metric m[];
};

static double cell_get(const struct cell *c)
{
    uint64_t bits = atomic_load_explicit(&c->bits, memory_order_relaxed);
    double v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

static void cell_set(struct cell *c, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    atomic_store_explicit(&c->bits, bits, memory_order_relaxed);
}

static void cell_add(struct cell *c, double d)
{
    uint64_t old = atomic_load_explicit(&c->bits, memory_order_relaxed), bits;
    double v;
    do {
        memcpy(&v, &old, sizeof(v));
        v += d;
        memcpy(&bits, &v, sizeof(bits));
    } while (!atomic_compare_exchange_weak_explicit(&c->bits, &old, bits, memory_order_relaxed,
                                                    memory_order_relaxed));
}

static int metric_init(struct metric *m, const struct metric_row *row)
{
    uint32_t slots = row->label ? SLOTS : 1;
    m->row = row;
    if (row->type != METRIC_HISTOGRAM)
        return 0;
    if (!(m->bound = calloc(row->n_bounds, sizeof(*m->bound))))
        return -1;
    double b = row->first;
    for (uint32_t i = 0; i < row->n_bounds; i++) {
        m->bound[i] = row->factor > 1 ? b : row->first * (i + 1);
        b *= row->factor;
    }
    for (uint32_t i = 0; i < slots; i++)
        if (!(m->s[i].bucket = calloc(row->n_bounds + 1, sizeof(*m->s[i].bucket))))
            return -1;
    return 0;
}

struct metrics *metrics_new(const struct metric_row *rows, uint32_t n)
{
    struct metrics *m = calloc(1, sizeof(*m) + n * sizeof(m->m[0]));
    if (!m)
        return NULL;
    m->n = n;
    for (uint32_t i = 0; i < n; i++)
        if (metric_init(&m->m[i], &rows[i]) != 0) {
            metrics_free(m);
            return NULL;
        }
    return m;
}

void metrics_free(struct metrics *m)
{
    for (uint32_t i = 0; m && i < m->n; i++) {
        for (uint32_t k = 0; k < SLOTS; k++) {
            free(m->m[i].s[k].bucket);
            free(atomic_load(&m->m[i].s[k].label));
        }
        free(m->m[i].bound);
    }
    free(m);
}

/* The series of a label value, created at first use. NULL: out of memory. */
static struct series *series_of(struct metric *m, const char *value)
{
    assert(!m->row->label == !value);
    if (!value)
        return &m->s[0];
    for (uint32_t i = 0; i < SLOTS; i++) {
        const char *want = i < MAX_VALUES ? value : "other";
        char *have = atomic_load_explicit(&m->s[i].label, memory_order_acquire);
        if (!have) {
            char *mine = strdup(want);
            if (!mine)
                return NULL;
            if (atomic_compare_exchange_strong(&m->s[i].label, &have, mine))
                return &m->s[i];
            free(mine); /* another thread has filled the slot: use its label */
        }
        if (!strcmp(have, want))
            return &m->s[i];
    }
    return NULL;
}

void metrics_expect(struct metrics *m, uint32_t row, const char *label_value)
{
    assert(row < m->n && m->m[row].row->label);
    series_of(&m->m[row], label_value);
}

void metrics_add(struct metrics *m, uint32_t row, const char *label_value, double v)
{
    assert(row < m->n && m->m[row].row->type == METRIC_COUNTER);
    struct series *s = series_of(&m->m[row], label_value);
    if (s)
        cell_add(&s->value, v);
}

void metrics_set(struct metrics *m, uint32_t row, const char *label_value, double v)
{
    assert(row < m->n && m->m[row].row->type == METRIC_GAUGE);
    struct series *s = series_of(&m->m[row], label_value);
    if (s)
        cell_set(&s->value, v);
}

static double *share_of(struct metric_shares *s, uint32_t row, const char *label)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->v[i].row == row &&
            (s->v[i].label == label || (label && s->v[i].label && !strcmp(s->v[i].label, label))))
            return &s->v[i].v;
    assert(s->n < METRIC_SHARES);
    s->v[s->n].row = row;
    s->v[s->n].label = label;
    s->v[s->n].v = 0;
    return &s->v[s->n++].v;
}

void metrics_share(struct metrics *m, struct metric_shares *s, uint32_t row,
                   const char *label_value, double v)
{
    assert(row < m->n && m->m[row].row->type == METRIC_GAUGE);
    double *had = share_of(s, row, label_value);
    struct series *at = series_of(&m->m[row], label_value);
    if (!at)
        return;
    if (v != *had)
        cell_add(&at->value, v - *had);
    *had = v;
}

void metrics_unshare(struct metrics *m, struct metric_shares *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        metrics_share(m, s, s->v[i].row, s->v[i].label, 0);
}

void metrics_observe(struct metrics *m, uint32_t row, const char *label_value, double v)
{
    assert(row < m->n && m->m[row].row->type == METRIC_HISTOGRAM);
    struct metric *h = &m->m[row];
    struct series *s = series_of(h, label_value);
    uint32_t lo = 0, hi = h->row->n_bounds;
    if (!s || isnan(v))
        return;
    while (lo < hi) { /* the first bound not below v: `le` is inclusive */
        uint32_t mid = (lo + hi) / 2;
        if (h->bound[mid] < v)
            lo = mid + 1;
        else
            hi = mid;
    }
    cell_add(&s->value, v);
    atomic_fetch_add_explicit(&s->bucket[lo], 1, memory_order_relaxed);
}

static void print_number(struct buf *out, double v)
{
    char s[32];
    snprintf(s, sizeof(s), "%.15g", v);
    if (strtod(s, NULL) != v)
        snprintf(s, sizeof(s), "%.17g", v);
    buf_str(out, isinf(v) ? v > 0 ? "+Inf" : "-Inf" : isnan(v) ? "NaN" : s);
}

static void print_escaped(struct buf *out, const char *s, bool quotes)
{
    for (; *s; s++) {
        if (*s == '\n')
            buf_str(out, "\\n");
        else if (*s == '\\' || (quotes && *s == '"'))
            buf_ch(out, '\\'), buf_ch(out, *s);
        else
            buf_ch(out, *s);
    }
}

/* How a row is printed: its name, and labels added to every series. */
struct shown {
    const struct metric *m;
    const char *name, *fixed;
    struct buf *out;
};

static void print_line(const struct shown *p, const char *suffix, const char *label, const char *le,
                       double v)
{
    const bool fixed = *p->fixed;
    buf_fmt(p->out, "%s%s", p->name, suffix);
    if (fixed || label || le)
        buf_fmt(p->out, "{%s", p->fixed);
    if (label) {
        buf_fmt(p->out, "%s%s=\"", fixed ? "," : "", p->m->row->label);
        print_escaped(p->out, label, true);
        buf_ch(p->out, '"');
    }
    if (le)
        buf_fmt(p->out, "%sle=\"%s\"", fixed || label ? "," : "", le);
    if (fixed || label || le)
        buf_ch(p->out, '}');
    buf_ch(p->out, ' ');
    print_number(p->out, v);
    buf_ch(p->out, '\n');
}

static void print_series(const struct shown *p, const struct series *s, enum metric_part part)
{
    const struct metric *m = p->m;
    const char *label = atomic_load_explicit(&s->label, memory_order_acquire);
    if (m->row->type != METRIC_HISTOGRAM || part == METRIC_SUM) {
        print_line(p, "", label, NULL, cell_get(&s->value));
        return;
    }
    uint64_t count = 0;
    for (uint32_t i = 0; i <= m->row->n_bounds; i++) {
        char le[32] = "+Inf";
        count += atomic_load_explicit(&s->bucket[i], memory_order_relaxed);
        if (i < m->row->n_bounds) /* nine digits print 0.000225, not 0.00022499999999999999 */
            snprintf(le, sizeof(le), "%.9g", m->bound[i]);
        print_line(p, "_bucket", label, le, (double)count);
    }
    print_line(p, "_sum", label, NULL, cell_get(&s->value));
    print_line(p, "_count", label, NULL, (double)count);
}

static void print_row(const struct shown *p, enum metric_part part)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    const struct metric *m = p->m;
    buf_fmt(p->out, "# HELP %s ", p->name);
    print_escaped(p->out, m->row->help, false);
    buf_fmt(p->out, "\n# TYPE %s %s\n", p->name,
            types[part == METRIC_SUM ? METRIC_COUNTER : m->row->type]);
    for (uint32_t k = 0; k < (m->row->label ? SLOTS : 1); k++)
        if (!m->row->label || atomic_load_explicit(&m->s[k].label, memory_order_acquire))
            print_series(p, &m->s[k], part);
}

void metrics_print(const struct metrics *m, struct buf *out)
{
    for (uint32_t i = 0; i < m->n; i++)
        print_row(&(struct shown){&m->m[i], m->m[i].row->name, "", out}, METRIC_ALL);
}

void metrics_print_aliases(const struct metrics *m, const struct metric_alias *a, uint32_t n,
                           const char *labels, struct buf *out)
{
    for (uint32_t i = 0; i < n; i++) {
        assert(a[i].row < m->n);
        assert(a[i].part == METRIC_ALL || m->m[a[i].row].row->type == METRIC_HISTOGRAM);
        print_row(&(struct shown){&m->m[a[i].row], a[i].name, labels, out}, a[i].part);
    }
}

void metrics_escape(struct buf *out, const char *s) { print_escaped(out, s, true); }
