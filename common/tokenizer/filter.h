/* filter.h - command-line filters: one JSON object per line in and out. For an invalid line
 * {"error": ".."} is written, and the next one is read. */
#ifndef COMMON_TOKENIZER_FILTER_H
#define COMMON_TOKENIZER_FILTER_H
#include "common/err.h"
#include <stdio.h>

/* {"text": "..", "add_special_tokens": true} -> {"ids": [..], "offsets": [[start, end], ..]};
 * offsets are bytes of the text. `dir` as in tokenizer_load(). 0, or -1: `e` describes why the
 * tokenizer cannot be loaded or a stream failed. */
int tokenize_filter(const char *dir, FILE *in, FILE *out, struct err *e);
/* {"ids": [..], "skip_special_tokens": false} -> {"text": ".."} */
int detokenize_filter(const char *dir, FILE *in, FILE *out, struct err *e);
#endif
