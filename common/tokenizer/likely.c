#include "common/tokenizer/likely.h"
#include "common/tokenizer/unigram.h"
#include <math.h>

void likely_put_steps(struct buf *b)
{
    buf_str(b, "\"normalizer\":null,\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Sequence\","
               "\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}");
}

void likely_put_model(struct buf *b)
{
    buf_str(b, "{\"type\":\"Unigram\",\"from_end\":true,\"byte_fallback\":true,\"unk_id\":0,"
               "\"vocab\":[");
}

void likely_put(struct buf *b, const char *s, size_t n, double score, bool is_text, bool first)
{
    enum { STEPS = 10000 };
    buf_str(b, first ? "[" : ",[");
    buf_json_str(b, s, n);
    buf_fmt(b, ",%.17g]", is_text ? round(score * STEPS) : UNIGRAM_NEVER);
}
