#include "router/api/openai/google_models.h"
#include "router/http/route.h"

const struct route route_gemini_models = {
    .method = "GET",
    .paths = {"/v1beta/models", "/v1beta/models/*"},
    .errors = ERRORS_GOOGLE,
    .summary = "The served models as Google's clients list them, or one by name.",
    .access = ACCESS_DESCRIBES,
    .reply = google_models,
};
