/* normal_form.h - NFC, NFD, NFKC, NFKD, tracking the origin of each character. */
#ifndef COMMON_TOKENIZER_NORMAL_FORM_H
#define COMMON_TOKENIZER_NORMAL_FORM_H
#include "common/tokenizer/text.h"

/* Rewrites the span of `r`; `work` is scratch memory. -1: out of memory. */
int normal_form(struct rewrite *r, bool compose, bool compat, struct buf *work);
/* True if the bytes are known to be unchanged. */
bool normal_form_idle(const char *s, size_t n, bool compose, bool compat);
#endif
