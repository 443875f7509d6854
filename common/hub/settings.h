/* settings.h - hub settings from the environment, with huggingface_hub's variables.
 *
 * cache     HUGGINGFACE_HUB_CACHE, HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
 *           ~/.cache/huggingface/hub: the first that is set
 * endpoint  HF_ENDPOINT, else https://huggingface.co
 * token     HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the file HF_TOKEN_PATH, else `token` beside the cache
 * offline   HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE: 1, true, yes, on
 * ca_file   SSL_CERT_FILE, REQUESTS_CA_BUNDLE (a company's own CA), else the system's
 * times     HF_HUB_ETAG_TIMEOUT, HF_HUB_DOWNLOAD_TIMEOUT: seconds, 10 each;
 *           HUB_RETRY_WAIT: seconds before a file is retried, 5 */
#ifndef COMMON_HUB_SETTINGS_H
#define COMMON_HUB_SETTINGS_H
#include <limits.h>
#include <stdbool.h>

struct hub_settings {
    char cache[PATH_MAX];
    char endpoint[512]; /* without a trailing slash */
    char token[512];    /* "": none; printable, without blanks */
    bool offline;
    char ca_file[PATH_MAX]; /* PEM; "": the system's */
    long connect_s;         /* connection timeout in seconds */
    long idle_s;            /* timeout in seconds without received bytes */
    long retry_s;           /* seconds before a retry; the hub may request more */
};

/* Reads the variables of the environment. */
void hub_settings_read(struct hub_settings *s);
/* WEIGHTS_CACHE_OVERRIDE: the folder used as the model, whatever its id; NULL: none. */
const char *hub_weights_override(void);
#endif
