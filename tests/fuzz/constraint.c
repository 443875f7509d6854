// fuzz-sources: common/constraint/*.c common/buf.c common/err.c common/json.c common/json_reader.c
// fuzz-sources: common/arena.c common/json_exact.c common/utf8.c common/tokenizer/unicode.c
/* Any pattern, schema or grammar, then any text: it may be refused, but not crash, hang or eat
 * memory; and what may come next must be what can come next. */
#include "common/constraint/constraint.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct token_set *bytes;
    struct err e = ERR_INIT;
    if (!bytes) {
        static char all[256];
        struct token_text text[256];
        for (int i = 0; i < 256; i++) {
            all[i] = (char)i;
            text[i] = (struct token_text){&all[i], 1};
        }
        bytes = token_set_new(text, 256, NULL, 0);
    }
    if (n < 1 || n > 4096)
        return 0;
    const uint8_t *zero = memchr(data + 1, 0, n - 1);
    size_t len = zero ? (size_t)(zero - data) - 1 : n - 1;
    static const enum constraint_kind kinds[] = {CONSTRAINT_JSON_SCHEMA,  CONSTRAINT_REGEX,
                                                 CONSTRAINT_JSON_COMPACT, CONSTRAINT_GBNF,
                                                 CONSTRAINT_LARK,         CONSTRAINT_CALLS};
    struct constraint *c =
        constraint_new(kinds[data[0] % CONSTRAINT_KINDS], (const char *)data + 1, len, &e);
    if (!c)
        return 0;
    constraint_state s = CONSTRAINT_START;
    for (size_t i = len + 2; i < n && i < len + 66 && s; i++) {
        uint32_t mask[8];
        bool can = !constraint_mask(c, s, bytes, mask, &e);
        bool may = can && mask[data[i] / 32] >> data[i] % 32 & 1;
        s = constraint_next(c, s, data + i, 1);
        if (can && may != (s != CONSTRAINT_DEAD))
            abort();
    }
    constraint_unref(c);
    return 0;
}
