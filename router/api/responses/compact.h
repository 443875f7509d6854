/* compact.h - OpenAI's compaction: a conversation becomes the user's messages and one item that
 * stands for all else. Here that item holds a summary by the model, in `encrypted_content`, which
 * clients pass on without reading it. */
#ifndef ROUTER_API_RESPONSES_COMPACT_H
#define ROUTER_API_RESPONSES_COMPACT_H
#include "router/api/responses/responses.h"

/* Sets p->kept, the user's messages of the conversation, in the listed format; worker. -1: out of
 * memory. */
int compact_keep(struct call *c, struct object root, struct responses *p);
/* The text that asks for the summary. */
extern const char compact_question[];
/* The summary in an item, as a message for the model. NULL: another server's item. The caller
 * frees it. */
char *compact_read(const cJSON *item);
/* Writes the answer to c->out. */
void compact_write(struct call *c);
#endif
