/* The filters: a line in, a line out, whatever the line. */
#include "common/tokenizer/filter.h"
#include "tests/unit/test.h"
#include <string.h>
#include <unistd.h>

static const char file_text[] =
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<"
    "s>\"}},"
    "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[3]}}},"
    "\"decoder\":{\"type\":\"Fuse\"},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xC3\xA9\":1,\"a\xC3\xA9\":2},\"merges\":["
    "\"a \xC3\xA9\"]}}";

typedef int filter_fn(const char *dir, FILE *in, FILE *out, struct err *e);

static void check(filter_fn *fn, const char *in, const char *want)
{
    char path[] = "/tmp/test_filter_XXXXXX", *got = NULL;
    size_t n = 0;
    struct err e = ERR_INIT;
    int fd = mkstemp(path);
    assert_true(fd >= 0 &&
                write(fd, file_text, sizeof file_text - 1) == (ssize_t)sizeof file_text - 1);
    close(fd);
    FILE *from = fmemopen((void *)(uintptr_t)in, strlen(in), "r"), *to = open_memstream(&got, &n);
    assert_int_equal(fn(path, from, to, &e), 0);
    fclose(from);
    fclose(to);
    unlink(path);
    assert_string_equal(got, want);
    free(got);
}

TEST(texts_become_ids_and_byte_offsets)
{
    check(tokenize_filter,
          "{\"text\":\"a\\u00e9a\"}\n"
          "{\"text\":\"a\\u0000a\",\"add_special_tokens\":false}\n"
          "{\"text\":\"a\",\"add_special_tokens\":false}\n"
          "\n"
          "{\"txt\":1}\n"
          "{\"text\":\"\"\n"
          "{\"text\":\"a\",\"add_special_tokens\":1}\n"
          "{\"text\":\"\",\"add_special_tokens\":false}",
          "{\"ids\":[3,2,0],\"offsets\":[[0,0],[0,3],[3,4]]}\n"
          "{\"ids\":[0,0],\"offsets\":[[0,1],[1,2]]}\n" /* no token for U+0000 */
          "{\"ids\":[0],\"offsets\":[[0,1]]}\n"
          "{\"error\":\"text: expected a string\"}\n"
          "{\"error\":\"EOF while parsing a value at line 1 column 11\"}\n"
          "{\"error\":\"add_special_tokens: expected true or false\"}\n"
          "{\"ids\":[],\"offsets\":[]}\n");
}

TEST(ids_become_text)
{
    check(detokenize_filter,
          "{\"ids\":[3,2,0]}\n{\"ids\":[3,2,0],\"skip_special_tokens\":true}\n{\"ids\":[]}\n"
          "{\"ids\":[99999999]}\n{\"ids\":[-1]}\n{\"ids\":[0.5]}\n{\"ids\":[\"a\"]}\n{}\n7\n",
          "{\"text\":\"<s>a\xC3\xA9"
          "a\"}\n{\"text\":\"a\xC3\xA9"
          "a\"}\n{\"text\":\"\"}\n{\"text\":\"\"}\n"
          "{\"error\":\"ids: expected a list of token ids\"}\n"
          "{\"error\":\"ids: expected a list of token ids\"}\n"
          "{\"error\":\"ids: expected a list of token ids\"}\n"
          "{\"error\":\"ids: expected a list of token ids\"}\n"
          "{\"error\":\"ids: expected a list of token ids\"}\n");
}

TEST(a_missing_tokenizer_is_named)
{
    struct err e = ERR_INIT;
    assert_int_equal(tokenize_filter("/nowhere", stdin, stdout, &e), -1);
    assert_non_null(strstr(e.msg, "/nowhere"));
}

int main(void) { return tests_run(NULL, NULL); }
