/* Checks of the test programs, which are C11 and C++17. */

#ifndef SUPPORT_H
#define SUPPORT_H

#include "cabinet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Ends the program unless the condition holds. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Ends the program unless a call has this status, and an error just if it has failed. The call
 * names `&error`, which is declared by ERROR. */
#define IS(status, call)                                                                           \
    do {                                                                                           \
        cabinet_status is_ = (call);                                                               \
        if (is_ != (status) || cabinet_error_code(error) != (is_ < 0 ? is_ : 0)) {                 \
            fprintf(stderr, "%s:%d: %s: %d (%s), not %s: %s; %s\n", __FILE__, __LINE__, #call,     \
                    (int)is_, cabinet_status_name(is_), #status, cabinet_error_text(error),        \
                    cabinet_error_advice(error));                                                  \
            exit(1);                                                                               \
        }                                                                                          \
        CHECK(is_ >= 0 ? error == NULL : cabinet_error_text(error)[0] != 0);                       \
        cabinet_error_free(error);                                                                 \
        error = NULL;                                                                              \
    } while (0)

#define OK(call) IS(CABINET_OK, call)
#define ERROR cabinet_error *error = NULL

/* A text as pointer and length. */
#define TEXT(text) (text), strlen(text)

/* Folder of the databases, without a slash at its end. */
static const char *folder;

/* Returns the path of a file in the folder, which the caller frees. */
static inline char *path_of(const char *name) {
    size_t length = strlen(folder) + strlen(name) + 2;
    char *path = (char *)malloc(length);
    CHECK(path != NULL);
    snprintf(path, length, "%s/%s", folder, name);
    return path;
}

/* Opens a database in the folder, or in memory. */
static inline cabinet_database *open_in_folder(const char *name) {
    ERROR;
    cabinet_database *database = NULL;
    char *path = name[0] == '*' || name[0] == '+' ? NULL : path_of(name);
    OK(cabinet_open(path ? path : name, &database, &error));
    free(path);
    return database;
}

/* Whether the value of a key is a text. */
static inline int has(cabinet_database *database, const char *key, const char *text) {
    ERROR;
    char *value = NULL;
    size_t length = 0;
    OK(cabinet_get(database, TEXT(key), &value, &length, &error));
    int is_it = length == strlen(text) && memcmp(value, text, length) == 0 && value[length] == 0;
    cabinet_free(value);
    return is_it;
}

/* Whether bytes are a text. */
static inline int is_text(const char *bytes, size_t length, const char *text) {
    return length == strlen(text) && memcmp(bytes, text, length) == 0;
}

#endif
