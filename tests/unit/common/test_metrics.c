/* The registry prints what was put in, in Prometheus' text format, from any number of threads. */
#include "common/metrics.h"
#include "tests/unit/test.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { COUNT, FAILED, QUEUE, TIME, SIZE };
static const struct metric_row rows[] = {
    [COUNT] = {"t_count", METRIC_COUNTER, NULL, "Requests."},
    [FAILED] = {"t_failed", METRIC_COUNTER, "err", "Failures\nby \\cause."},
    [QUEUE] = {"t_queue", METRIC_GAUGE, NULL, "Waiting."},
    [TIME] = {"t_time", METRIC_HISTOGRAM, "method", "Seconds.", 0.00015, 1.5, 3},
    [SIZE] = {"t_size", METRIC_HISTOGRAM, NULL, "Tokens.", 10, 0, 3},
};

static void has(const struct buf *b, const char *line)
{
    char want[200];
    snprintf(want, sizeof(want), "%s\n", line);
    if (!strstr(b->p, want))
        fail_msg("no line `%s` in:\n%s", line, b->p);
}

TEST(a_gauge_is_the_sum_of_its_shares)
{
    struct metrics *m = metrics_new(rows, 5);
    struct metric_shares one = {0}, two = {0};
    struct buf b = BUF_INIT;
    metrics_share(m, &one, QUEUE, NULL, 3);
    metrics_share(m, &two, QUEUE, NULL, 4);
    metrics_share(m, &one, QUEUE, NULL, 1);
    metrics_print(m, &b);
    has(&b, "t_queue 5");
    metrics_unshare(m, &two);
    buf_reset(&b);
    metrics_print(m, &b);
    has(&b, "t_queue 1");
    buf_free(&b);
    metrics_free(m);
}

TEST(prints_every_kind)
{
    struct metrics *m = metrics_new(rows, 5);
    struct buf b = BUF_INIT;
    metrics_add(m, COUNT, NULL, 2);
    metrics_add(m, COUNT, NULL, 1.5);
    metrics_add(m, FAILED, "va\"l", 1);
    metrics_set(m, QUEUE, NULL, 7);
    metrics_set(m, QUEUE, NULL, 4294967296.0);
    metrics_observe(m, SIZE, NULL, 10); /* a bound belongs to its bucket */
    metrics_observe(m, SIZE, NULL, 10.5);
    metrics_observe(m, SIZE, NULL, 1000);
    metrics_observe(m, TIME, "decode", 0.0002);
    metrics_print(m, &b);
    has(&b, "# HELP t_failed Failures\\nby \\\\cause.");
    has(&b, "# TYPE t_count counter");
    has(&b, "t_count 3.5");
    has(&b, "t_failed{err=\"va\\\"l\"} 1");
    has(&b, "t_queue 4294967296");
    has(&b, "t_size_bucket{le=\"10\"} 1");
    has(&b, "t_size_bucket{le=\"20\"} 2");
    has(&b, "t_size_bucket{le=\"30\"} 2");
    has(&b, "t_size_bucket{le=\"+Inf\"} 3");
    has(&b, "t_size_sum 1020.5");
    has(&b, "t_size_count 3");
    has(&b, "t_time_bucket{method=\"decode\",le=\"0.00015\"} 0");
    has(&b, "t_time_bucket{method=\"decode\",le=\"0.000225\"} 1");
    buf_free(&b);
    metrics_free(m);
}

TEST(untouched_rows_are_zero)
{
    struct metrics *m = metrics_new(rows, 5);
    struct buf b = BUF_INIT;
    metrics_print(m, &b);
    has(&b, "t_count 0");
    has(&b, "t_size_count 0");
    assert_null(strstr(b.p, "t_failed{"));
    buf_free(&b);
    metrics_free(m);
}

TEST(late_label_values_share_other)
{
    struct metrics *m = metrics_new(rows, 5);
    struct buf b = BUF_INIT;
    for (int i = 0; i < 40; i++) {
        char v[16];
        snprintf(v, sizeof(v), "v%d", i);
        metrics_add(m, FAILED, v, 1);
    }
    metrics_print(m, &b);
    has(&b, "t_failed{err=\"v15\"} 1");
    has(&b, "t_failed{err=\"other\"} 24");
    buf_free(&b);
    metrics_free(m);
}

static void *hammer(void *arg)
{
    struct metrics *m = arg;
    static const char *const v[] = {"a", "b", "c"};
    for (int i = 0; i < 30000; i++) {
        metrics_add(m, FAILED, v[i % 3], 1);
        metrics_observe(m, TIME, v[i % 3], 0.0001);
    }
    return NULL;
}

TEST(nothing_is_lost_between_threads)
{
    struct metrics *m = metrics_new(rows, 5);
    struct buf b = BUF_INIT;
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, hammer, m);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    metrics_print(m, &b);
    has(&b, "t_failed{err=\"a\"} 40000");
    has(&b, "t_failed{err=\"c\"} 40000");
    has(&b, "t_time_count{method=\"b\"} 40000");
    buf_free(&b);
    metrics_free(m);
}

TEST(a_series_is_there_before_its_first_event)
{
    struct metrics *m = metrics_new(rows, 5);
    struct buf b = BUF_INIT;
    metrics_expect(m, FAILED, "full");
    metrics_add(m, FAILED, "other cause", 2);
    metrics_print(m, &b);
    has(&b, "t_failed{err=\"full\"} 0");
    has(&b, "t_failed{err=\"other cause\"} 2");
    buf_free(&b);
    metrics_free(m);
}

TEST(prints_rows_under_other_names)
{
    static const struct metric_alias aliases[] = {{"o:count_total", COUNT, METRIC_ALL},
                                                  {"o:failed", FAILED, METRIC_ALL},
                                                  {"o:size", SIZE, METRIC_ALL},
                                                  {"o:size_total", SIZE, METRIC_SUM},
                                                  {"o:time", TIME, METRIC_ALL}};
    struct metrics *m = metrics_new(rows, 5);
    struct buf b = BUF_INIT, name = BUF_INIT;
    metrics_add(m, COUNT, NULL, 3);
    metrics_add(m, FAILED, "full", 1);
    metrics_observe(m, SIZE, NULL, 12);
    metrics_observe(m, SIZE, NULL, 30);
    metrics_observe(m, TIME, "decode", 1);
    buf_str(&name, "m=\"");
    metrics_escape(&name, "a\"b\\");
    buf_str(&name, "\",e=\"0\"");
    metrics_print_aliases(m, aliases, 5, name.p, &b);
    has(&b, "# HELP o:count_total Requests.");
    has(&b, "# TYPE o:count_total counter");
    has(&b, "o:count_total{m=\"a\\\"b\\\\\",e=\"0\"} 3");
    has(&b, "o:failed{m=\"a\\\"b\\\\\",e=\"0\",err=\"full\"} 1");
    has(&b, "# TYPE o:size histogram");
    has(&b, "o:size_bucket{m=\"a\\\"b\\\\\",e=\"0\",le=\"20\"} 1");
    has(&b, "o:size_count{m=\"a\\\"b\\\\\",e=\"0\"} 2");
    has(&b, "# TYPE o:size_total counter");
    has(&b, "o:size_total{m=\"a\\\"b\\\\\",e=\"0\"} 42");
    has(&b, "o:time_bucket{m=\"a\\\"b\\\\\",e=\"0\",method=\"decode\",le=\"+Inf\"} 1");
    assert_null(strstr(b.p, "\nt_"));
    buf_free(&name);
    buf_free(&b);
    metrics_free(m);
}

int main(void) { return tests_run(NULL, NULL); }
