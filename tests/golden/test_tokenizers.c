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

static void golden(void **state)
{
    char path[4096];
    unsigned n = 0, bad = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/tokenizers", data_dir());
    struct dirent **list;
    int count = scandir(path, &list, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/tokenizers/%s/tokenizer.json", data_dir(), list[i]->d_name);
        FILE *f = list[i]->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f) {
            fclose(f);
            n++;
            bad += !check_tokenizer(list[i]->d_name);
        }
        free(list[i]);
    }
    if (count >= 0)
        free(list);
    if (!n)
        TEST_SKIPPED(25, "no tokenizers in TEST_DATA");
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
