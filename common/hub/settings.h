/* settings.h - what the environment says about the hub, in huggingface_hub's variables.
 *
 * cache     HUGGINGFACE_HUB_CACHE, HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
 *           ~/.cache/huggingface/hub: the first that is set
 * endpoint  HF_ENDPOINT, else https://huggingface.co
 * token     HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the file HF_TOKEN_PATH, else `token` beside the cache
 * offline   HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE: 1, true, yes, on
 * ca_file   SSL_CERT_FILE, REQUESTS_CA_BUNDLE (a company's own authority), else the system's
 * times     HF_HUB_ETAG_TIMEOUT, HF_HUB_DOWNLOAD_TIMEOUT: seconds, 10 each;
 *           HUB_RETRY_WAIT: seconds before a file is tried again, 5 */
#ifndef COMMON_HUB_SETTINGS_H
#define COMMON_HUB_SETTINGS_H
#include <limits.h>
#include <stdbool.h>

struct hub_settings {
    char cache[PATH_MAX];
    char endpoint[512]; /* without a slash at its end */
    char token[512];    /* "": none; printable, without blanks */
    bool offline;
    char ca_file[PATH_MAX]; /* PEM; "": the system's */
    long connect_s;         /* until a connection stands */
    long idle_s;            /* without a byte while one is expected */
    long retry_s;           /* before the next try; a hub may ask for more */
};

void hub_settings_read(struct hub_settings *s);
/* WEIGHTS_CACHE_OVERRIDE: the folder that stands for the model, whatever its id; NULL: none. */
const char *hub_weights_override(void);
#endif
