// fuzz-sources: common/rpc/trace_context.c
/* The header that any client may send. What is read is written again as it came. */
#include "common/rpc/trace.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct trace_context c;
    char *s = malloc(n + 1), out[TRACE_PARENT_LEN + 1];
    if (!s)
        return 0;
    memcpy(s, data, n);
    s[n] = 0;
    if (trace_parse(s, &c)) {
        trace_print(&c, out);
        if (strlen(out) != TRACE_PARENT_LEN || memcmp(out + 2, s + 2, TRACE_PARENT_LEN - 4) != 0)
            abort();
    }
    free(s);
    return 0;
}
