/* Broken tokenizers end in one clear error; hostile texts cost no more than they are long. */
#include "common/tokenizer/tokenizer_impl.h"
#include "tests/unit/test.h"
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static void refuse(const char *json, const char *why)
{
    struct err e = ERR_INIT;
    struct tokenizer *t = tokenizer_load_text(json, strlen(json), &e);
    if (t)
        fail_msg("accepted: %s", json);
    if (!strstr(e.msg, why))
        fail_msg("%s\n  says: %s\n  not:  %s", json, e.msg, why);
    assert_int_equal(e.kind, ERR_VALIDATION);
}

TEST(broken_files_are_named)
{
    refuse("", "expected an object");
    refuse("[]", "expected an object");
    refuse("{\"model\":", "the text ends here");
    refuse("{\"model\":{\"type\":\"BPE\"", "closing bracket");
    refuse("{}", "model: missing");
    refuse("{\"model\":{\"type\":\"BPE\"}}", "model.vocab: missing");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "model.merges: missing");
    refuse("{\"model\":{\"type\":\"Quux\",\"vocab\":{}}}", "model.type");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1e99},\"merges\":[]}}", "whole number");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "whole number");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0.5},\"merges\":[]}}", "whole number");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4294967295},\"merges\":[]}}",
           "whole number");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}",
           "model.merges[0]: token \"b\" is not in the vocabulary");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[[\"a\",\"b\"]]}}",
           "\"ab\"");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}",
           "model.merges[0]");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}",
           "model.merges[0]");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}", "model.vocab");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "model.vocab");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":7}}", "model.unk_id");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\\ud800\":0},\"merges\":[]}}", "surrogate");
#define WITH(section) "{" section ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}"
    refuse(WITH("\"normalizer\":{\"type\":\"Nope\"}"), "normalizer: unknown type \"Nope\"");
    refuse(WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"}}"),
           "regular expression");
    refuse(WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?~a)\"}}"),
           "(?~ or");
    refuse(WITH("\"pre_tokenizer\":{\"type\":\"Split\"}"), "pattern");
    refuse(WITH("\"decoder\":{\"type\":\"Nope\"}"), "decoder");
    refuse(WITH("\"post_processor\":{\"type\":\"TemplateProcessing\"}"), "post_processor");
    refuse(WITH("\"added_tokens\":[{\"id\":3}]"), "added_tokens[0]");
    refuse(WITH("\"added_tokens\":7"), "added_tokens");
    refuse(WITH("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}"),
           "charsmap");
}

TEST(every_cut_of_a_file_is_an_error)
{
    static const char whole[] =
        WITH("\"added_tokens\":[{\"id\":1,\"content\":\"<s>\"}],\"normalizer\":{\"type\":\"NFC\"},"
             "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"Fuse\"}");
    for (size_t n = 0; n < sizeof whole - 2; n++) {
        struct err e = ERR_INIT;
        struct tokenizer *t = tokenizer_load_text(whole, n, &e);
        assert_null(t);
        assert_true(e.msg[0]);
    }
}

/* Many nested arrays or sequences must not exhaust the stack. */
TEST(depth_is_bounded)
{
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    buf_str(&b, "{\"normalizer\":");
    for (int i = 0; i < 100000; i++)
        buf_str(&b, "{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 100000; i++)
        buf_str(&b, "]}");
    buf_str(&b, ",\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}");
    assert_null(tokenizer_load_text(b.p, b.len, &e));
    buf_free(&b);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Of the processor: on a busy machine the clock says nothing of the work. */
static double seconds(const struct tokenizer *t, const char *s, size_t n, uint32_t *tokens)
{
    struct tok_scratch *scratch = NULL;
    struct tok_ids ids = {0};
    struct err e = ERR_INIT;
    const double t0 = cpu_seconds();
    if (tokenizer_encode(t, s, n, TOK_OFFSETS, &scratch, &ids, &e) != 0)
        fail_msg("%s", e.msg);
    const double took = cpu_seconds() - t0;
    if (ids.n)
        assert_true(ids.at[ids.n - 1].end <= n);
    *tokens = ids.n;
    tok_ids_free(&ids);
    tok_scratch_free(scratch);
    return took;
}

/* A quarter of a megabyte of one thing (half of that for the later tokenizers). The bound is
 * generous (sanitizers, shared machines); what is quadratic would take many minutes. */
TEST(much_of_one_thing)
{
    static const char *const names[] = {
        "llama3",      "llama2", "t5",       "qwen2_5",
        "mistral_v3",  "falcon", "gpt_neox", "synthetic_addedtokens",
        "deepseek_llm"};
    static const char *const units[] = {"a",
                                        " ",
                                        "\n",
                                        "7",
                                        "ab",
                                        "\xE4\xB8\xAD",
                                        "e\xCC\x81",
                                        "\xCC\x81",
                                        "\xFF",
                                        "'",
                                        "<|",
                                        " \n",
                                        "\xE2\x96\x81",
                                        "A1 ",
                                        "\xF0\x9F\x91\xA8\xE2\x80\x8D"};
    enum { SIZE = 1 << 18 };
    char *s = malloc(SIZE);
    unsigned missing = 0;
    assert_non_null(s);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char file[256];
        struct err e = ERR_INIT;
        snprintf(file, sizeof file, "tokenizers/%s/tokenizer.json", names[i]);
        const char *path = test_data(file);
        struct tokenizer *t = path ? tokenizer_load(path, &e) : NULL;
        if (!path) {
            missing++;
            continue;
        }
        assert_non_null(t);
        for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
            size_t len = strlen(units[u]);
            uint32_t tokens;
            for (size_t k = 0; k < SIZE; k++)
                s[k] = units[u][k % len];
            double took = seconds(t, s, i < 3 ? SIZE : SIZE / 2, &tokens);
            if (took > 5)
                fail_msg("%s: %.1f s for 256 kB of \"%s\"", names[i], took, units[u]);
            if (getenv("VERBOSE"))
                print_message("%-22s %-6s %8u tokens %6.0f ms\n", names[i], units[u], tokens,
                              took * 1e3);
        }
        tokenizer_free(t);
    }
    if (missing)
        TEST_SKIPPED(missing, "no tokenizers in TEST_DATA");
    free(s);
}

int main(void) { return tests_run(NULL, NULL); }
