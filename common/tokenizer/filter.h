/* filter.h - a tokenizer as a filter: JSON objects, one a line, in and out. A line that can't be
 * worked on is answered by {"error": ".."} in its place, and the next is read. */
#ifndef COMMON_TOKENIZER_FILTER_H
#define COMMON_TOKENIZER_FILTER_H
#include "common/err.h"
#include <stdio.h>

/* {"text": "..", "add_special_tokens": true} -> {"ids": [..], "offsets": [[start, end], ..]};
 * offsets are bytes of the text. `dir` as for tokenizer_load(). 0, or -1: `e` says why the
 * tokenizer can't be loaded or the streams fail. */
int tokenize_filter(const char *dir, FILE *in, FILE *out, struct err *e);
/* {"ids": [..], "skip_special_tokens": false} -> {"text": ".."} */
int detokenize_filter(const char *dir, FILE *in, FILE *out, struct err *e);
#endif
