#include "router/api/gemini/gemini.h"
#include "router/call/tokens.h"
#include "router/http/route.h"
#include <string.h>

static const char *model(struct call *c)
{
    const char *action;
    return gemini_model(c, &action);
}

static int generate(struct call *c, bool stream, struct err *e)
{
    struct chat_request r;
    return gemini_parse(c, stream, &r, e) == 0 ? gemini_generate(c, &r, e) : -1;
}

static int count(struct call *c, struct err *e)
{
    struct chat_request r;
    uint32_t n;
    if (gemini_parse(c, false, &r, e) != 0 || tokens_count(c, r.openai->asks, false, &n, e) != 0)
        return -1;
    buf_fmt(&c->out, "{\"totalTokens\":%u}", n);
    return 0;
}

static int work(struct call *c, struct err *e)
{
    const char *action;
    if (!gemini_model(c, &action))
        return err_nomem(e);
    if (!strcmp(action, "generateContent"))
        return generate(c, false, e);
    if (!strcmp(action, "streamGenerateContent"))
        return generate(c, true, e);
    if (!strcmp(action, "countTokens"))
        return count(c, e);
    if (!strcmp(action, "embedContent") || !strcmp(action, "batchEmbedContents") ||
        !strcmp(action, "predict"))
        return gemini_embed(c, action, e);
    return err_set(e, ERR_NOT_FOUND,
                   "A path ends in `:generateContent`, `:streamGenerateContent`, `:countTokens`, "
                   "`:embedContent`, `:batchEmbedContents` or `:predict`");
}

const struct route route_gemini = {
    .method = "POST",
    .paths = {"/v1beta/models/*", "/v1/models/*", "/v1beta1/publishers/google/models/*",
              "/v1/publishers/google/models/*",
              "/v1beta1/projects/*/locations/*/publishers/google/models/*",
              "/v1/projects/*/locations/*/publishers/google/models/*"},
    .arguments = {"alt"},
    .errors = ERRORS_GOOGLE,
    .any_type = true,
    .model = model,
    .summary = "Google's Gemini API: `/v1beta/models/NAME:generateContent`, "
               "`:streamGenerateContent` (events with `?alt=sse`, otherwise a JSON list) and "
               "`:countTokens`; of a model that embeds `:embedContent`, `:batchEmbedContents` and "
               "Vertex AI's `:predict`. `/v1/models/NAME:..` and Vertex AI's paths are the same. "
               "The key may be sent as "
               "`x-goog-api-key` or `?key=`.",
    .body =
        "`contents` (text, images, text files, `functionCall`, `functionResponse`), "
        "`systemInstruction`, `tools` (`functionDeclarations`), `toolConfig` and "
        "`generationConfig`; Google's own tools are left out, which the header `warning` says; "
        "`cachedContent` is refused, `safetySettings` have no effect. Of vectors: `content`, or "
        "`requests` with one each, `outputDimensionality`, `taskType` (selects the model's "
        "prompt `query` or `document`), `autoTruncate`",
    .work = work,
};
