#include "common/process/shard_group.h"
#include "common/hash.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void shard_group_path(char path[SHARD_GROUP_PATH], const char *group)
{
    char word[40];
    size_t n = 0;
    for (const char *c = group; *c && n < sizeof(word) - 1; c++)
        word[n++] = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9')
                        ? *c
                        : '-';
    word[n] = '\0';
    snprintf(path, SHARD_GROUP_PATH, SHARD_GROUP_DIR "/" SHARD_GROUP_PREFIX "%s-%016" PRIx64, word,
             hash_bytes(0, group, strlen(group)));
}
