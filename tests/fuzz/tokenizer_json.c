// A tokenizer.json of foreign bytes: loaded, and if that works used on a text of its own bytes.

// fuzz-sources: common/file/file_stamp.c
// fuzz-sources: common/tokenizer/*.c common/buf.c common/err.c common/json/json.c
// fuzz-sources: common/json/reader.c common/arena.c common/json/exact.c common/utf8.c
// fuzz-sources: common/model/model_file.c common/gguf/*.c common/tokenizer/vocab.c
// fuzz-sources: common/file/file_map.c common/model/first_module.c
#include "common/tokenizer/tokenizer_impl.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = ERR_INIT;
    struct tok_scratch *scratch = NULL;
    struct tok_ids ids = {0};
    struct buf out = BUF_INIT;
    struct detok d;
    struct tokenizer *t = tokenizer_load_text((const char *)data, n, &e);
    if (!t) {
        if (!e.msg[0])
            abort();
        return 0;
    }
    size_t text = n < 2000 ? n : 2000;
    if (tokenizer_encode(t, (const char *)data, text, TOK_ADD_SPECIAL | TOK_OFFSETS, &scratch, &ids,
                         &e) == 0) {
        for (uint32_t i = 0; i < ids.n; i++)
            if (ids.at[i].start > ids.at[i].end || ids.at[i].end > text)
                abort();
        tokenizer_decode(t, ids.id, ids.n, false, &out);
        if (detok_init(&d, t, ids.id, ids.n < 3 ? ids.n : 3, true) == 0) {
            for (uint32_t i = 0; i < ids.n && i < 500; i++)
                detok_push(&d, ids.id[i], &out);
            detok_finish(&d, &out);
            detok_free(&d);
        }
    }
    buf_free(&out);
    tok_ids_free(&ids);
    tok_scratch_free(scratch);
    tokenizer_free(t);
    return 0;
}
