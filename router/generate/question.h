/* question.h - a question that one thread asks another one, which may answer too late. */
#ifndef ROUTER_GENERATE_QUESTION_H
#define ROUTER_GENERATE_QUESTION_H
#include "common/buf.h"
#include <stdbool.h>
#include <stdint.h>

/* Two hold it, who asks and who answers; the last one frees it. */
struct question;
struct question *question_new(void); /* NULL: no memory */
/* Once, by who was asked. Takes `text`; `yes` is for the asker. */
void question_answer(struct question *q, struct buf *text, bool yes);
/* Once, by who asks. Waits at most `ms`; `asked` false: nobody will answer. True: there is an
 * answer, whose text is appended to `out`. */
bool question_wait(struct question *q, bool asked, int64_t ms, struct buf *out, bool *yes);
#endif
