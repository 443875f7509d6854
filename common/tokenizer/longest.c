#include "common/tokenizer/longest.h"
#include "common/tokenizer/byte_chars.h"
#include "common/utf8.h"
#include <stdint.h>

void longest_put_steps(struct buf *b)
{
    buf_str(b, "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
               "\"add_prefix_space\":false,\"use_regex\":false},"
               "\"decoder\":{\"type\":\"ByteLevel\"}");
}

void longest_put_model(struct buf *b, const char *unknown, size_t n)
{
    buf_str(b, "{\"type\":\"WordPiece\",\"unk_token\":");
    buf_json_str(b, unknown, n);
    buf_fmt(b, ",\"continuing_subword_prefix\":\"\",\"max_input_chars_per_word\":%d,\"vocab\":{",
            INT32_MAX);
}

void longest_put_bytes(struct buf *b, const char *bytes, size_t n)
{
    struct buf text = {0};
    char utf8[4];
    for (size_t i = 0; i < n; i++)
        buf_add(&text, utf8, utf8_encode(byte_to_char((unsigned char)bytes[i]), utf8));
    buf_json_str(b, text.p, text.len);
    b->oom |= text.oom;
    buf_free(&text);
}
