/* Every tokenizer of TEST_DATA/tokenizers against TEST_DATA/expected/tokenizers: ids, offsets,
 * decode, and decode as a stream. */
#include "tests/golden/token_checks.h"
#include <dirent.h>

static const char *data_dir(void)
{
    const char *d = getenv("TEST_DATA");
    return d && *d ? d : TEST_DATA;
}

static bool check_tokenizer(const char *name)
{
    char path[4096];
    struct err e = ERR_INIT;
    struct tally y = {.name = name};
    bool ok = true;
    snprintf(path, sizeof path, "%s/expected/tokenizers/%s.jsonl", data_dir(), name);
    FILE *f = fopen(path, "r");
    if (!f)
        return true;
    snprintf(path, sizeof path, "%s/tokenizers/%s", data_dir(), name);
    struct tokenizer *t = tokenizer_load(path, &e);
    if (!t)
        fail_msg("%s", e.msg);
    check_strings(&y, t, f);
    print_message("\n");
    for (unsigned i = 0; i < CHECKS; i++)
        ok &= !y.bad[i];
    fclose(f);
    tokenizer_free(t);
    return ok;
}

enum { SPLITS = 300, SPLIT_TOKENS = 60 };

static uint32_t replacements(const struct buf *b)
{
    uint32_t n = 0;
    for (size_t i = 0; i + 3 <= b->len; i++)
        n += !memcmp(b->p + i, "\xEF\xBF\xBD", 3);
    return n;
}

/* Ids of which no text was made: the stream is the decoded whole, in pieces of whole characters.
 * A run of byte tokens that is no UTF-8 is one U+FFFD for each byte in tokenizers' decode(), also
 * for the letters in it; a stream has sent the letters by then, and has no more U+FFFD. */
static bool check_any_split(const struct tokenizer *t, const uint32_t *ids, uint32_t n, bool skip,
                            bool by_bytes)
{
    struct buf whole = BUF_INIT, out = BUF_INIT;
    struct detok d;
    bool ok = true;
    assert_int_equal(detok_init(&d, t, NULL, 0, skip), 0);
    for (uint32_t i = 0; i < n; i++) {
        const size_t mark = out.len;
        detok_push(&d, ids[i], &out);
        ok &= out.len == mark || utf8_valid(out.p + mark, out.len - mark);
    }
    detok_finish(&d, &out);
    tokenizer_decode(t, ids, n, skip, &whole);
    const bool same = out.len == whole.len && (!whole.len || !memcmp(out.p, whole.p, whole.len));
    const uint32_t lost = replacements(&whole);
    ok &= same || (by_bytes && lost && replacements(&out) <= lost);
    if (!ok)
        print_message("  stream `%.200s`, whole `%.200s`\n", out.p ? out.p : "",
                      whole.p ? whole.p : "");
    detok_free(&d);
    buf_free(&whole);
    buf_free(&out);
    return ok;
}

/* Some from the whole vocabulary, some from its beginning, where bytes and pieces of characters
 * are. */
static bool check_splits(const char *name)
{
    char path[4096];
    struct err e = ERR_INIT;
    uint32_t ids[SPLIT_TOKENS], bad = 0;
    snprintf(path, sizeof path, "%s/tokenizers/%s", data_dir(), name);
    struct tokenizer *t = tokenizer_load(path, &e);
    if (!t)
        fail_msg("%s", e.msg);
    const uint32_t all = tokenizer_vocab_size(t);
    const bool by_bytes = tokenizer_id(t, "<0x41>") >= 0;
    srand(test_seed(25));
    for (unsigned k = 0; k < SPLITS; k++) {
        const uint32_t n = 1 + (uint32_t)rand() % SPLIT_TOKENS;
        for (uint32_t i = 0; i < n; i++)
            ids[i] = (uint32_t)rand() % (k % 2 && all > 512 ? 512 : all);
        bad += !check_any_split(t, ids, n, k % 4 < 2, by_bytes);
    }
    tokenizer_free(t);
    if (bad)
        print_message("  %s: %u of %d\n", name, bad, SPLITS);
    return bad == 0;
}

static void of_each_tokenizer(bool (*check)(const char *name))
{
    char path[4096];
    unsigned n = 0, bad = 0;
    snprintf(path, sizeof path, "%s/tokenizers", data_dir());
    struct dirent **list;
    int count = scandir(path, &list, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/tokenizers/%s/tokenizer.json", data_dir(), list[i]->d_name);
        FILE *f = list[i]->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f) {
            fclose(f);
            n++;
            bad += !check(list[i]->d_name);
        }
        free(list[i]);
    }
    if (count >= 0)
        free(list);
    if (!n)
        TEST_SKIPPED(25, "no tokenizers in TEST_DATA");
    assert_int_equal(bad, 0);
}

static void golden(void **state)
{
    (void)state;
    of_each_tokenizer(check_tokenizer);
}

static void a_stream_of_any_ids_is_their_text(void **state)
{
    (void)state;
    of_each_tokenizer(check_splits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden),
                                       cmocka_unit_test(a_stream_of_any_ids_is_their_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
