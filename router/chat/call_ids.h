/* call_ids.h - ids of calls in histories of protocols that need none (Ollama's, Google's): a result
 * answers the oldest call of its function that has no result. */
#ifndef ROUTER_CHAT_CALL_IDS_H
#define ROUTER_CHAT_CALL_IDS_H
#include <cjson/cJSON.h>
#include <stdint.h>

struct call_ids {              /* zero is empty */
    cJSON *waiting, *answered; /* lists of ids, each with the name of its function */
    uint32_t n;
};

/* The id of the next call of `function`: `given`, or if that is NULL a new one of nine letters and
 * digits, as Mistral's templates require. "": out of memory. Valid until call_ids_free(), as
 * below. */
const char *call_ids_open(struct call_ids *c, const char *given, const char *function);
/* The id of the call that a result answers: `given`, otherwise the oldest waiting one of
 * `function`, otherwise (also for NULL) the oldest waiting one; "": none. */
const char *call_ids_answer(struct call_ids *c, const char *given, const char *function);
void call_ids_free(struct call_ids *c);
#endif
