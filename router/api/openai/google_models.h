/* google_models.h - the list of models in the format of Google's Gemini API. */
#ifndef ROUTER_API_OPENAI_GOOGLE_MODELS_H
#define ROUTER_API_OPENAI_GOOGLE_MODELS_H
#include "router/call/call.h"

/* Is it a request of one of Google's clients? Loop thread. */
bool google_asks(const struct call *c);
/* Answers a GET of ".../models" or ".../models/NAME". Errors have the shape of c->errors. */
void google_models(struct call *c);
#endif
