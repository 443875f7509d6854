/* expect_ids.h - the ids of a text, with the special tokens around it. */
#ifndef TESTS_UNIT_COMMON_TOKENIZER_EXPECT_IDS_H
#define TESTS_UNIT_COMMON_TOKENIZER_EXPECT_IDS_H
#include "common/tokenizer/tokenizer.h"
#include "tests/unit/test.h"
#include <string.h>

static inline void expect_ids(const struct tokenizer *t, const char *text, const uint32_t *want,
                              uint32_t n)
{
    struct tok_scratch *scratch = NULL;
    struct tok_ids ids = {0};
    struct err e = ERR_INIT;
    assert_int_equal(tokenizer_encode(t, text, strlen(text), TOK_ADD_SPECIAL, &scratch, &ids, &e),
                     0);
    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.id, want, n * sizeof(*want));
    tok_ids_free(&ids);
    tok_scratch_free(scratch);
}

/* The same by the tokenizer of a folder or file. */
static inline void expect_encodes(const char *path, const char *text, const uint32_t *want,
                                  uint32_t n)
{
    struct err e = ERR_INIT;
    struct tokenizer *t = tokenizer_load(path, &e);
    if (!t)
        fail_msg("%s", e.msg);
    expect_ids(t, text, want, n);
    tokenizer_free(t);
}
#define EXPECT_ENCODES(path, text, ...)                                                            \
    expect_encodes(path, text, (const uint32_t[]){__VA_ARGS__},                                    \
                   sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
#endif
