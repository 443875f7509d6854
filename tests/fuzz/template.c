// fuzz-sources: common/template/*.c common/arena.c common/buf.c common/err.c common/json/json.c
// fuzz-sources: common/json/reader.c common/json/exact.c common/utf8.c common/tokenizer/regex.c
// fuzz-sources: common/tokenizer/regex_translate.c common/tokenizer/unicode.c
/* Any template over a small conversation: it may fail, but not crash, hang or eat memory. */
#include "common/json/json.h"
#include "common/template/chat.h"
#include <stdlib.h>
#include <string.h>

static const char vars[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"h\xc3\xa9llo <b> 1\"},{\"role\":\"assistant\","
    "\"content\":\"x\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1.5,"
    "\"b\":[1,"
    "null,true]}}}]}],\"s\":\"abc def\",\"d\":{\"a\":1,\"b\":2},\"l\":[3,1,2],\"i\":7,\"f\":2.5}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static cJSON *j;
    struct err e = ERR_INIT;
    if (!j) {
        j = json_parse(vars, sizeof(vars) - 1, &e);
        template_keep_numbers(j, vars, sizeof(vars) - 1);
    }
    struct template *t = template_compile((const char *)data, n, &e);
    if (!t)
        return 0;
    struct template_limits limits = {
        .max_steps = 100000, .max_memory = 8 << 20, .max_output = 1 << 20, .now = 1736944496};
    struct buf out = BUF_INIT;
    template_render(t, j, &limits, &out, &e);
    struct chat_input in = {.messages = json_get(j, "messages"), .continue_field = "content"};
    buf_reset(&out);
    chat_render(t, &in, &limits, &out, &e);
    buf_free(&out);
    template_free(t);
    return 0;
}
