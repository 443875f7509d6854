/* The tokenizers of TEST_DATA as metadata of a GGUF file, against TEST_DATA/expected/tokenizers:
 * what Hugging Face's own code makes of the tokenizer.json that they come from. */
#include "tests/golden/gguf_tokens.h"
#include "tests/golden/token_checks.h"
#include <unistd.h>

/* `lost`: how many strings the format cannot say as tokenizer.json does, and why. */
static const struct token_case {
    const char *name, *pre, *family;
    unsigned lost[CHECKS];
    const char *why;
} cases[] = {
    {"tiny320", "gpt-2", "llama", {0}, NULL},
    {"stories260k", NULL, "llama", {0}, NULL},
    {"llama2",
     NULL,
     "llama",
     {17, 17, 16},
     "its control tokens are looked for in the normalised text"},
    {"mistral_v1", NULL, "llama", {0}, NULL},
    {"phi3", NULL, "phi3", {1, 1, 1}, "</s> takes no white space along"},
    {"synthetic_gemma", NULL, "gemma2", {4, 4, 4}, "nothing merges to its runs of spaces"},
    {"synthetic_gemma", "gemma4", "gemma4", {0}, NULL},
    {"synthetic_bloom", "bloom", "bloom", {0}, NULL},
    {"llama3", "llama-bpe", "llama", {0}, NULL},
    {"qwen2_5", "qwen2", "qwen2", {0}, NULL},
    {"gpt2", "gpt-2", "llama", {0}, NULL},
    {"gpt_neox", "olmo", "llama", {0, 0, 228}, "offsets without the space before a word"},
    {"cohere", "mpt", "llama", {0}, NULL},
    {"phi2", "phi-2", "llama", {0}, NULL},
    {"granite3", "gpt-2", "granite", {0}, NULL},
    {"starcoder", "starcoder", "starcoder2", {0}, NULL},
    {"falcon", "falcon", "llama", {0}, NULL},
    {"deepseek_llm", "deepseek-llm", "llama", {0}, NULL},
    {"deepseek_coder", "deepseek-coder", "llama", {0}, NULL},
    {"synthetic_deepseek_v3", "deepseek-v3", "llama", {0}, NULL},
    {"synthetic_o200k", "gpt-4o", "llama", {0}, NULL},
    {"t5", "t5", "t5", {0}, NULL},
};
enum { N_CASES = sizeof(cases) / sizeof(cases[0]) };
static int skipped;

static struct tokenizer *through_gguf(const struct token_case *k, const char *dir)
{
    struct gguf_write w = {0};
    struct err e = ERR_INIT;
    char path[] = "/tmp/gguf-tokens-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    gw_put_str(&w, "general.architecture", k->family);
    gguf_tokens(&w, dir, k->pre);
    assert_int_equal(gw_save(&w, path), 0);
    struct tokenizer *t = tokenizer_load(path, &e);
    unlink(path);
    if (!t)
        fail_msg("%s: %s", k->name, e.msg);
    return t;
}

static void a_file_tokenizes_as_its_folder(void **state)
{
    const struct token_case *k = *state;
    char name[200], dir[1024];
    struct tally y = {.name = k->name};
    snprintf(name, sizeof(name), "tokenizers/%s/tokenizer.json", k->name);
    const char *path = test_data(name);
    if (!path) {
        skipped++;
        return;
    }
    snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(path) - strlen("/tokenizer.json")), path);
    struct tokenizer *t = through_gguf(k, dir);
    snprintf(name, sizeof(name), "expected/tokenizers/%s.jsonl", k->name);
    path = test_data(name);
    FILE *f = path ? fopen(path, "r") : NULL;
    assert_non_null(f);
    check_strings(&y, t, f);
    print_message("%s%s\n", k->why ? "; " : "", k->why ? k->why : "");
    fclose(f);
    tokenizer_free(t);
    for (unsigned i = 0; i < CHECKS; i++)
        assert_int_equal(y.bad[i], k->lost[i]);
}

int main(void)
{
    static struct CMUnitTest tests[N_CASES];
    for (size_t i = 0; i < N_CASES; i++)
        tests[i] = (struct CMUnitTest){.name = cases[i].name,
                                       .test_func = a_file_tokenizes_as_its_folder,
                                       .initial_state = (void *)(uintptr_t)&cases[i]};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (skipped)
        TEST_SKIPPED(skipped, "no tokenizers under TEST_DATA");
    return failed;
}
