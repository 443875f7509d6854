/* question.h - a request for a text from one thread to another, with a timeout. */
#ifndef ROUTER_GENERATE_QUESTION_H
#define ROUTER_GENERATE_QUESTION_H
#include "common/buf.h"
#include <stdbool.h>
#include <stdint.h>

/* Reference-counted by the asking and the answering thread; the last release frees it. */
struct question;
struct question *question_new(void); /* NULL: out of memory */
/* Call once, on the answering thread. Takes ownership of `text`. `yes` is passed to the asking
 * thread. Releases the question. */
void question_answer(struct question *q, struct buf *text, bool yes);
/* Call once, on the asking thread. Waits at most `ms` milliseconds; with `asked` false there is no
 * answering thread, and it returns at once. True: answered, and the text is appended to `out`.
 * Releases the question. */
bool question_wait(struct question *q, bool asked, int64_t ms, struct buf *out, bool *yes);
#endif
