// Texts through the tokenizers of the reference data (TEST_DATA). Offsets lie in the text,
// byte-level text comes back unchanged where the vocabulary has every byte, a stream emits whole
// characters only.

// fuzz-sources: common/file/file_stamp.c
// fuzz-sources: common/tokenizer/*.c common/buf.c common/err.c common/json/json.c
// fuzz-sources: common/json/reader.c common/arena.c common/json/exact.c common/utf8.c
// fuzz-sources: common/model/model_file.c common/gguf/*.c common/tokenizer/vocab.c
// fuzz-sources: common/file/file_map.c common/model/first_module.c
#include "common/tokenizer/tokenizer.h"
#include "common/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct {
    const char *name;
    bool exact; /* decode(encode(text)) is the text */
} names[] = {{"llama3", true},          {"gpt2", true},
             {"llama2", false},         {"t5", false},
             {"falcon", false},         {"mistral_v3", false},
             {"marian_nmt", false},     {"synthetic_addedtokens", false},
             {"synthetic_gemma", false}};
enum { COUNT = sizeof(names) / sizeof(names[0]) };

static struct tokenizer *load(size_t i)
{
    static struct tokenizer *loaded[COUNT];
    static bool tried[COUNT];
    if (!tried[i]) {
        char path[1024];
        struct err e = ERR_INIT;
        const char *data = getenv("TEST_DATA");
        snprintf(path, sizeof path, "%s/tokenizers/%s", data && *data ? data : "../shared/data",
                 names[i].name);
        loaded[i] = tokenizer_load(path, &e);
        tried[i] = true;
    }
    return loaded[i];
}

static void check_stream(const struct tokenizer *t, const struct tok_ids *ids)
{
    struct buf out = BUF_INIT;
    struct detok d;
    if (detok_init(&d, t, NULL, 0, false) != 0)
        abort();
    for (uint32_t i = 0; i < ids->n; i++) {
        size_t mark = out.len;
        detok_push(&d, ids->id[i], &out);
        if (out.len > mark && !utf8_valid(out.p + mark, out.len - mark))
            abort();
    }
    detok_finish(&d, &out);
    detok_free(&d);
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = ERR_INIT;
    struct tok_scratch *scratch = NULL;
    struct tok_ids ids = {0};
    struct buf out = BUF_INIT;
    if (n < 1)
        return 0;
    size_t which = data[0] % COUNT;
    const struct tokenizer *t = load(which);
    const char *text = (const char *)data + 1;
    n--;
    if (!t)
        return 0;
    if (tokenizer_encode(t, text, n, TOK_OFFSETS, &scratch, &ids, &e) == 0) {
        for (uint32_t i = 0; i < ids.n; i++)
            if (ids.at[i].start > ids.at[i].end || ids.at[i].end > n)
                abort();
        tokenizer_decode(t, ids.id, ids.n, false, &out);
        if (names[which].exact && utf8_valid(text, n) &&
            (out.len != n || (n && memcmp(out.p, text, n) != 0)))
            abort();
        check_stream(t, &ids);
    }
    buf_free(&out);
    tok_ids_free(&ids);
    tok_scratch_free(scratch);
    return 0;
}
