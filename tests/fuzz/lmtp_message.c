// fuzz-sources: router/api/lmtp/message.c common/json/reader.c common/buf.c common/arena.c
// fuzz-sources: common/err.c common/utf8.c common/rpc/trace_context.c
/* A client's message: whatever it is, reading it ends, stays within its bytes, and what comes out
 * keeps its promises. */
#include "router/api/lmtp/message.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lmtp_message m;
    struct arena a;
    arena_init(&a, 4096 + 16 * size);
    char *exact = malloc(size ? size : 1);
    if (size)
        memcpy(exact, data, size);
    lmtp_parse(exact, size, &a, &m);
    free(exact);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < m.n_prompt; i++)
        sum += m.prompt[i];
    for (uint32_t i = 0; i < m.n_scored; i++)
        sum += m.scored[i];
    for (uint32_t i = 0; i < m.n_bias; i++)
        sum += m.bias_ids[i] + (m.bias[i] == m.bias[i]);
    const char *strings[] = {m.text, m.scored_text, m.buffer, m.save, m.drop, m.session};
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
        if (strings[i] && strlen(strings[i]) > size)
            abort();
    if (m.text && strlen(m.text) != m.n_text)
        abort();
    if (sum == 1 && m.model && strlen(m.model) == size)
        abort(); /* a model's name is shorter than what holds it */
    bool work = m.type == LMTP_GENERATE || m.type == LMTP_SCORE;
    if (m.err.kind == ERR_NONE &&
        (!m.id.text[0] || (work && ((!m.prompt && !m.text && !m.buffer) || !m.max_tokens))))
        abort();
    if (memchr(m.id.text, 0, sizeof(m.id.text)) == NULL)
        abort();
    arena_reset(&a);
    return 0;
}
