/* shard_group.h - where the ranks of a group meet on one host: a file in /dev/shm that is named
 * after the group while they do. The ranks remove it when all are there; what is left when they are
 * killed before that is their launcher's to remove. */
#ifndef COMMON_SHARD_GROUP_H
#define COMMON_SHARD_GROUP_H
#include <stddef.h>

#define SHARD_GROUP_DIR    "/dev/shm"
#define SHARD_GROUP_PREFIX "model-server-"
enum { SHARD_GROUP_PATH = 128 };

/* Readable, safe as a file name, and different for different groups. */
void shard_group_path(char path[SHARD_GROUP_PATH], const char *group);
#endif
