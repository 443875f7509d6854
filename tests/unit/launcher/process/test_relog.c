/* Lines out of pieces, and a child's last words. */
#include "common/buf.h"
#include "launcher/process/relog.h"
#include "tests/unit/test.h"
#include <string.h>

static void collect(void *arg, const char *line, size_t n)
{
    buf_add(arg, line, n);
    buf_ch(arg, '|');
}

TEST(every_cut_gives_the_same_lines)
{
    static const char text[] = "one\ntwo\r\n\n{\"a\": 1}\nlast";
    static struct relog r;
    for (size_t a = 0; a < sizeof(text); a++)
        for (size_t b = a; b < sizeof(text); b++) {
            struct buf got = BUF_INIT;
            memset(&r, 0, sizeof(r));
            relog_feed(&r, text, a, collect, &got);
            relog_feed(&r, text + a, b - a, collect, &got);
            relog_feed(&r, text + b, sizeof(text) - 1 - b, collect, &got);
            relog_end(&r, collect, &got);
            assert_string_equal(got.p, "one|two|{\"a\": 1}|last|");
            buf_free(&got);
        }
}

TEST(a_line_without_end_costs_no_memory)
{
    static struct relog r;
    static char much[10000];
    struct buf got = BUF_INIT;
    memset(much, 'x', sizeof(much));
    for (int i = 0; i < 50; i++)
        relog_feed(&r, much, sizeof(much), collect, &got);
    relog_feed(&r, "\nnext\n", 6, collect, &got);
    assert_in_range(got.len, RELOG_LINE_MAX - 10, RELOG_LINE_MAX + 10);
    assert_string_equal(got.p + got.len - 12, " [cut]|next|");
    buf_free(&got);
}

TEST(a_line_of_just_the_limit_is_whole)
{
    static struct relog r;
    static char line[RELOG_LINE_MAX];
    memset(line, 'x', sizeof(line));
    for (size_t n = RELOG_LINE_MAX - 12; n < RELOG_LINE_MAX; n++) {
        struct buf got = BUF_INIT;
        relog_feed(&r, line, n, collect, &got);
        relog_feed(&r, "\n", 1, collect, &got);
        assert_true(got.len <= RELOG_LINE_MAX + 1);
        assert_int_equal(memcmp(got.p, line, RELOG_LINE_MAX - 12), 0);
        assert_ptr_equal(memchr(got.p, '|', got.len), got.p + got.len - 1);
        buf_free(&got);
    }
}

static void note(struct relog_last *l, const char *line) { relog_note(l, line, strlen(line)); }

TEST(last_words)
{
    struct relog_last l = {0};
    assert_string_equal(relog_words(&l), "");
    note(&l, "{\"level\":\"INFO\",\"fields\":{\"message\":\"fine\"}}");
    assert_string_equal(relog_words(&l), "");
    note(&l, "malloc(): corrupted");
    assert_string_equal(relog_words(&l), "malloc(): corrupted");
    note(&l, "{\"level\":\"ERROR\",\"fields\":{\"message\":\"no such file\"}}");
    note(&l, "{\"level\":\"INFO\",\"fields\":{\"message\":\"bye\"}}");
    note(&l, "Aborted");
    assert_string_equal(relog_words(&l), "no such file");
    note(&l, "{broken");
    note(&l, "{\"level\":3,\"fields\":[]}");
    assert_string_equal(relog_words(&l), "no such file");
}

int main(void) { return tests_run(NULL, NULL); }
