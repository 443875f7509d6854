/* gguf_steps.h - how words of bytes are cut, as tokenizer.json says it. */
#ifndef COMMON_TOKENIZER_GGUF_STEPS_H
#define COMMON_TOKENIZER_GGUF_STEPS_H
#include "common/buf.h"
#include "common/gguf/vocab.h"

/* `"normalizer":..,"pre_tokenizer":..,"decoder":..`, appended. */
void gguf_put_steps(struct buf *b, const struct gguf_pre *p);
#endif
