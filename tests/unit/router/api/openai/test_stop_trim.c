/* For every way of cutting a text into tokens: what is sent is the text before the stop sequence.
 */
#include "router/api/openai/stop_trim.h"
#include "tests/unit/test.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool keep;

/* How many of the last bytes of text [n] may begin one of the sequences; n: one of them is there.
 */
static size_t may_begin(const char *const *stop, uint32_t n_stop, const char *text, size_t n)
{
    size_t most = 0;
    for (uint32_t s = 0; s < n_stop; s++) {
        size_t len = strlen(stop[s]);
        for (size_t k = 0; k + len <= n; k++)
            if (!memcmp(text + k, stop[s], len))
                return n;
        for (size_t k = 1; k < len && k <= n; k++)
            if (k > most && !memcmp(text + n - k, stop[s], k))
                most = k;
    }
    return most;
}

static void check(const char *const *stop, uint32_t n, const char *text, const char *want)
{
    size_t len = strlen(text);
    for (unsigned cuts = 0; cuts < 1u << (len - 1); cuts++) { /* bit i: a cut behind byte i */
        struct stop_trim t = {.stop = stop, .n = n, .keep = keep};
        struct buf out = BUF_INIT;
        size_t from = 0;
        for (size_t i = 0; i < len; i++)
            if (i + 1 == len || cuts & 1u << i) {
                stop_trim_push(&t, text + from, i + 1 - from, false, &out);
                from = i + 1;
                if (strncmp(out.p ? out.p : "", want, out.len) != 0)
                    fail_msg("cuts %x of `%s`: `%s` is out", cuts, text, out.p);
                size_t waits = may_begin(stop, n, text, from);
                if (waits < from && out.len != from - waits)
                    fail_msg("cuts %x of `%s`: %zu bytes are out, %zu may wait", cuts, text,
                             out.len, waits);
            }
        stop_trim_end(&t, &out);
        assert_string_equal(out.p ? out.p : "", want);
        buf_free(&out);
        stop_trim_free(&t);
    }
}

TEST(matched_text_is_never_sent)
{
    const char *const one[] = {"abab"}, *const two[] = {"</s>", "\n\n"},
                      *const nested[] = {"aab", "ab"}, *const inside[] = {"ab c", "b"};
    check(one, 1, "xababab", "x");
    check(one, 1, "abaabab", "aba");
    check(two, 2, "hi <b></s>", "hi <b>");
    check(two, 2, "a\nb\n\n", "a\nb");
    check(nested, 2, "caab", "c");
    check(inside, 2, "xab", "xa");
    check(inside, 2, "xab c",
          "xa"); /* the first that is complete, however many a token completes */
    check(inside, 2, "xab cd", "xa");
}

TEST(a_kept_sequence_is_the_last_that_is_sent)
{
    const char *const one[] = {"abab"}, *const nested[] = {"aab", "ab"},
                      *const inside[] = {"ab c", "b"};
    keep = true;
    check(one, 1, "xababab", "xabab");
    check(nested, 2, "caab", "caab");
    check(inside, 2, "xab", "xab");
    check(inside, 2, "xab c", "xab");
    check(one, 1, "xaba", "xaba");
    keep = false;
}

TEST(unmatched_text_is_sent_in_full)
{
    const char *const one[] = {"abab"};
    check(one, 1, "xabaxaba", "xabaxaba");
    check(one, 1, "xaba", "xaba");
    check(NULL, 0, "abc", "abc");
}

/* What comes of `early`, then `late`, in every way of cutting both. */
static void check_early(const char *const *stop, uint32_t n, const char *early, const char *late,
                        const char *want)
{
    size_t a = strlen(early), len = a + strlen(late);
    char text[64];
    snprintf(text, sizeof(text), "%s%s", early, late);
    for (unsigned cuts = 0; cuts < 1u << (len - 1); cuts++) {
        struct stop_trim t = {.stop = stop, .n = n};
        struct buf out = BUF_INIT;
        size_t from = 0;
        for (size_t i = 0; i < len; i++)
            if (i + 1 == a || i + 1 == len || cuts & 1u << i) {
                stop_trim_push(&t, text + from, i + 1 - from, i < a, &out);
                from = i + 1;
                if (strncmp(out.p ? out.p : "", want, out.len) != 0)
                    fail_msg("cuts %x of `%s`: `%s` is out", cuts, text, out.p);
            }
        stop_trim_end(&t, &out);
        assert_string_equal(out.p ? out.p : "", want);
        assert_int_equal(t.matched, strlen(want) < len);
        buf_free(&out);
        stop_trim_free(&t);
    }
}

TEST(a_sequence_that_comes_too_early_is_text)
{
    const char *const one[] = {"ab"}, *const doubled[] = {"aa"}, *const two[] = {"abcd", "b"};
    check_early(one, 1, "xab", "y", "xaby");
    check_early(one, 1, "xab", "yab", "xaby");
    check_early(one, 1, "xa", "by", "x");
    check_early(doubled, 1, "aa", "ab", "a");
    check_early(two, 2, "xab", "ce", "xabce");
    check_early(two, 2, "xab", "cd", "x");
}

int main(void) { return tests_run(NULL, NULL); }
