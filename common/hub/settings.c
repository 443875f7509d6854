#include "common/hub/settings.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TIMEOUT_S = 10, RETRY_S = 5 };

static const char *env(const char *name)
{
    const char *v = getenv(name); // NOLINT(concurrency-mt-unsafe): setenv() is never called
    return v && *v ? v : NULL;
}

static void home(char out[PATH_MAX])
{
    if (env("HF_HOME"))
        snprintf(out, PATH_MAX, "%s", env("HF_HOME"));
    else if (env("XDG_CACHE_HOME"))
        snprintf(out, PATH_MAX, "%s/huggingface", env("XDG_CACHE_HOME"));
    else
        snprintf(out, PATH_MAX, "%s/.cache/huggingface", env("HOME") ? env("HOME") : "");
}

static bool is_true(const char *name)
{
    const char *v = env(name);
    return v && (!strcmp(v, "1") || !strcasecmp(v, "true") || !strcasecmp(v, "yes") ||
                 !strcasecmp(v, "on"));
}

static long seconds(const char *name, long otherwise)
{
    const char *v = env(name);
    long n = v ? strtol(v, NULL, 10) : 0;
    return n > 0 && n < 86400 ? n : otherwise;
}

/* The token becomes a part of a header line: it ends at the first blank or line end. */
static void read_token(struct hub_settings *s, const char *folder)
{
    const char *t = env("HF_TOKEN") ? env("HF_TOKEN") : env("HUGGING_FACE_HUB_TOKEN");
    char path[PATH_MAX + 16];
    if (t) {
        snprintf(s->token, sizeof(s->token), "%s", t);
    } else {
        snprintf(path, sizeof(path), "%s/token", folder);
        FILE *f = fopen(env("HF_TOKEN_PATH") ? env("HF_TOKEN_PATH") : path, "re");
        if (f && !fgets(s->token, sizeof(s->token), f))
            s->token[0] = '\0';
        if (f)
            fclose(f);
    }
    for (char *p = s->token; *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f)
            *p = '\0';
}

void hub_settings_read(struct hub_settings *s)
{
    char folder[PATH_MAX];
    const char *cache = env("HUGGINGFACE_HUB_CACHE");
    const char *endpoint = env("HF_ENDPOINT");

    *s = (struct hub_settings){.connect_s = seconds("HF_HUB_ETAG_TIMEOUT", TIMEOUT_S),
                               .idle_s = seconds("HF_HUB_DOWNLOAD_TIMEOUT", TIMEOUT_S),
                               .retry_s = seconds("HUB_RETRY_WAIT", RETRY_S)};
    home(folder);
    cache = cache ? cache : env("HF_HUB_CACHE");
    if (cache)
        snprintf(s->cache, PATH_MAX, "%s", cache);
    else
        snprintf(s->cache, PATH_MAX, "%.*s/hub", PATH_MAX - 8, folder);
    snprintf(s->endpoint, sizeof(s->endpoint), "%s",
             endpoint ? endpoint : "https://huggingface.co");
    for (size_t n = strlen(s->endpoint); n && s->endpoint[n - 1] == '/';)
        s->endpoint[--n] = '\0';
    read_token(s, folder);
    const char *ca = env("SSL_CERT_FILE") ? env("SSL_CERT_FILE") : env("REQUESTS_CA_BUNDLE");
    snprintf(s->ca_file, sizeof(s->ca_file), "%s", ca ? ca : "");
    s->offline = is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE");
}

const char *hub_weights_override(void) { return env("WEIGHTS_CACHE_OVERRIDE"); }
