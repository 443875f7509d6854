/* normal_form.h - NFC, NFD, NFKC, NFKD with a record of which character stands for which. */
#ifndef COMMON_TOKENIZER_NORMAL_FORM_H
#define COMMON_TOKENIZER_NORMAL_FORM_H
#include "common/tokenizer/text.h"

/* Rewrites the span of `r`; `work` is scratch. -1: out of memory. */
int normal_form(struct rewrite *r, bool compose, bool compat, struct buf *work);
/* True if the bytes surely stay as they are. */
bool normal_form_idle(const char *s, size_t n, bool compose, bool compat);
#endif
