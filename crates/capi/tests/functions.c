/* Every function of the library, in each way that it can end without a fault of the machine. */

#include "support.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a callback has seen. */
typedef struct {
    int calls;
    int stop_after;
    char seen[512];
    cabinet_database *database;
    cabinet_status status;
} seen_t;

static seen_t seen_by(cabinet_database *database) {
    seen_t seen;
    memset(&seen, 0, sizeof seen);
    seen.database = database;
    return seen;
}

static void note(seen_t *seen, const char *bytes, size_t length) {
    size_t at = strlen(seen->seen);
    CHECK(at + length + 2 < sizeof seen->seen);
    memcpy(seen->seen + at, bytes, length);
    seen->seen[at + length] = ' ';
    seen->seen[at + length + 1] = 0;
    seen->calls++;
}

static int note_key(void *context, const cabinet_record *record) {
    seen_t *seen = (seen_t *)context;
    note(seen, record->key, record->key_length);
    return seen->calls == seen->stop_after;
}

static int note_value(void *context, const cabinet_record *record) {
    seen_t *seen = (seen_t *)context;
    note(seen, record->value, record->value_length);
    return seen->calls == seen->stop_after;
}

/* Calls the database that has called it, which is refused. */
static int call_back(void *context, const cabinet_record *record) {
    ERROR;
    seen_t *seen = (seen_t *)context;
    seen->calls++;
    IS(CABINET_REENTRANT, cabinet_put(seen->database, TEXT("k"), TEXT("v"), &error));
    IS(CABINET_REENTRANT, cabinet_close(seen->database, &error));
    CHECK(record->version != 0);
    return 0;
}

static void records(const char *name) {
    ERROR;
    cabinet_database *database = open_in_folder(name);
    char *value = (char *)"left";
    size_t length = 7;
    IS(CABINET_NOT_FOUND, cabinet_get(database, TEXT("apple"), &value, &length, &error));
    CHECK(value == NULL);
    OK(cabinet_put(database, TEXT("apple"), TEXT("red"), &error));
    CHECK(has(database, "apple", "red"));
    OK(cabinet_get(database, TEXT("apple"), &value, NULL, NULL));
    CHECK(strcmp(value, "red") == 0);
    cabinet_free(value);
    cabinet_free(NULL);

    char buffer[8];
    IS(CABINET_BUFFER_TOO_SMALL,
       cabinet_get_into(database, TEXT("apple"), buffer, 2, &length, &error));
    CHECK(length == 3);
    OK(cabinet_get_into(database, TEXT("apple"), buffer, sizeof buffer, &length, &error));
    CHECK(is_text(buffer, length, "red"));
    IS(CABINET_NOT_FOUND, cabinet_get_into(database, TEXT("x"), NULL, 0, &length, &error));
    OK(cabinet_value_size(database, TEXT("apple"), &length, &error));
    CHECK(length == 3);
    IS(CABINET_NOT_FOUND, cabinet_value_size(database, TEXT("x"), &length, &error));

    seen_t seen = seen_by(database);
    OK(cabinet_read(database, TEXT("apple"), note_value, &seen, &error));
    CHECK(strcmp(seen.seen, "red ") == 0);
    IS(CABINET_NOT_FOUND, cabinet_read(database, TEXT("x"), note_value, &seen, &error));
    OK(cabinet_read(database, TEXT("apple"), call_back, &seen, &error));
    CHECK(seen.calls == 2);

    IS(CABINET_EXISTS, cabinet_add(database, TEXT("apple"), TEXT("blue"), &error));
    OK(cabinet_add(database, TEXT("pear"), TEXT("green"), &error));
    OK(cabinet_append(database, TEXT("pear"), TEXT("ish"), &error));
    CHECK(has(database, "pear", "greenish"));
    OK(cabinet_remove(database, TEXT("pear"), &error));
    IS(CABINET_NOT_FOUND, cabinet_remove(database, TEXT("pear"), &error));

    int32_t sum = 0;
    OK(cabinet_add_int(database, TEXT("visits"), 5, NULL, &error));
    OK(cabinet_add_int(database, TEXT("visits"), -2, &sum, &error));
    CHECK(sum == 3);
    IS(CABINET_NOT_A_NUMBER, cabinet_add_int(database, TEXT("apple"), 1, &sum, &error));
    double total = 0;
    OK(cabinet_add_double(database, TEXT("price"), 1.5, &total, &error));
    OK(cabinet_add_double(database, TEXT("price"), 0.25, &total, &error));
    CHECK(total == 1.75);

    /* Flags, expiry, conditions, versions. */
    cabinet_put_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = 7;
    uint64_t version = 0, newer = 0;
    OK(cabinet_put_with(database, TEXT("f"), TEXT("1"), &options, &version, &error));
    CHECK(version != 0);
    options.condition = CABINET_PUT_IF_ABSENT;
    IS(CABINET_EXISTS, cabinet_put_with(database, TEXT("f"), TEXT("2"), &options, NULL, &error));
    options.condition = CABINET_PUT_IF_PRESENT;
    IS(CABINET_NOT_FOUND,
       cabinet_put_with(database, TEXT("g"), TEXT("2"), &options, NULL, &error));
    OK(cabinet_put_with(database, TEXT("f"), TEXT("2"), &options, &newer, &error));
    CHECK(newer > version);
    IS(CABINET_INVALID, cabinet_compare_and_swap(database, TEXT("f"), newer, TEXT("3"), &options,
                                                 NULL, &error));
    options.condition = 0;
    IS(CABINET_CHANGED, cabinet_compare_and_swap(database, TEXT("f"), version, TEXT("3"), &options,
                                                 NULL, &error));
    IS(CABINET_NOT_FOUND,
       cabinet_compare_and_swap(database, TEXT("g"), version, TEXT("3"), NULL, NULL, &error));
    OK(cabinet_compare_and_swap(database, TEXT("f"), newer, TEXT("3"), &options, &version, &error));
    CHECK(version > newer);
    options.condition = 9;
    IS(CABINET_INVALID, cabinet_put_with(database, TEXT("f"), TEXT("2"), &options, NULL, &error));
    OK(cabinet_touch(database, TEXT("f"), 1, &error));
    IS(CABINET_NOT_FOUND, cabinet_value_size(database, TEXT("f"), &length, &error));
    IS(CABINET_NOT_FOUND, cabinet_touch(database, TEXT("f"), 0, &error));

    uint64_t count = 0, bytes = 0;
    OK(cabinet_count(database, &count, &error));
    CHECK(count >= 3);
    OK(cabinet_size_bytes(database, &bytes, &error));
    CHECK(bytes > 0);
    OK(cabinet_clear(database, &error));
    OK(cabinet_count(database, &count, &error));
    CHECK(count == 0);
    cabinet_database_free(database);
}

static int decide_to_double(void *context, const cabinet_record *record,
                            cabinet_replacement *replacement) {
    static char text[64];
    (*(int *)context)++;
    if (record == NULL) {
        replacement->value = "x";
        replacement->value_length = 1;
        replacement->flags = 5;
        return CABINET_MODIFY_PUT;
    }
    CHECK(record->flags == 5 && replacement->flags == 5);
    if (record->value_length == 4) {
        return CABINET_MODIFY_REMOVE;
    }
    memcpy(text, record->value, record->value_length);
    memcpy(text + record->value_length, record->value, record->value_length);
    replacement->value = text;
    replacement->value_length = record->value_length * 2;
    return CABINET_MODIFY_PUT;
}

static int decide_to_keep(void *context, const cabinet_record *record,
                          cabinet_replacement *replacement) {
    (void)context, (void)record, (void)replacement;
    return CABINET_MODIFY_KEEP;
}

static int decide_nothing_known(void *context, const cabinet_record *record,
                                cabinet_replacement *replacement) {
    (void)context, (void)record, (void)replacement;
    return 77;
}

static void modifications(void) {
    ERROR;
    cabinet_database *database = open_in_folder("*");
    int calls = 0;
    uint64_t version = 0;
    OK(cabinet_modify(database, TEXT("k"), decide_to_double, &calls, &version, &error));
    CHECK(version != 0 && has(database, "k", "x"));
    OK(cabinet_modify(database, TEXT("k"), decide_to_double, &calls, NULL, &error));
    OK(cabinet_modify(database, TEXT("k"), decide_to_keep, &calls, &version, &error));
    CHECK(version == 0);
    OK(cabinet_modify(database, TEXT("k"), decide_to_double, &calls, NULL, &error));
    CHECK(has(database, "k", "xxxx") && calls == 3);
    IS(CABINET_INVALID,
       cabinet_modify(database, TEXT("k"), decide_nothing_known, &calls, NULL, &error));
    OK(cabinet_modify(database, TEXT("k"), decide_to_double, &calls, NULL, &error));
    size_t length = 0;
    IS(CABINET_NOT_FOUND, cabinet_value_size(database, TEXT("k"), &length, &error));
    cabinet_database_free(database);
}

static void batches(void) {
    ERROR;
    cabinet_database *database = open_in_folder("batches.tch");
    cabinet_batch *batch = cabinet_batch_create();
    OK(cabinet_batch_put(batch, TEXT("a"), TEXT("1"), NULL, &error));
    OK(cabinet_batch_put(batch, TEXT("b"), TEXT("2"), NULL, &error));
    OK(cabinet_batch_remove(batch, TEXT("c"), &error));
    OK(cabinet_batch_expect(batch, TEXT("c"), 0, &error));
    CHECK(cabinet_batch_length(batch) == 3 && cabinet_batch_length(NULL) == 0);
    OK(cabinet_write(database, batch, &error));
    CHECK(has(database, "a", "1") && has(database, "b", "2"));
    OK(cabinet_batch_expect(batch, TEXT("a"), 12345, &error));
    IS(CABINET_CONFLICT, cabinet_write(database, batch, &error));
    cabinet_batch_clear(batch);
    cabinet_batch_clear(NULL);
    CHECK(cabinet_batch_length(batch) == 0);
    OK(cabinet_write(database, batch, &error));
    IS(CABINET_INVALID, cabinet_write(database, NULL, &error));
    IS(CABINET_INVALID, cabinet_batch_put(NULL, TEXT("a"), TEXT("1"), NULL, &error));
    char *long_key = (char *)calloc(65537, 1);
    OK(cabinet_batch_put(batch, long_key, 65537, TEXT("1"), NULL, &error));
    IS(CABINET_TOO_LONG, cabinet_write(database, batch, &error));
    free(long_key);
    cabinet_batch_free(batch);
    cabinet_batch_free(NULL);
    cabinet_database_free(database);
}

static void transactions(void) {
    ERROR;
    cabinet_database *database = open_in_folder("transactions.tcb");
    cabinet_database *one = NULL, *other = NULL, *inner = NULL;
    int32_t sum = 0;
    OK(cabinet_add_int(database, TEXT("alice"), 10, NULL, &error));
    OK(cabinet_transaction_begin(database, &one, &error));
    OK(cabinet_transaction_begin(database, &other, &error));
    OK(cabinet_add_int(one, TEXT("alice"), -3, &sum, &error));
    CHECK(sum == 7);
    OK(cabinet_add_int(one, TEXT("bob"), 3, NULL, &error));
    OK(cabinet_add_int(other, TEXT("alice"), 1, NULL, &error));
    size_t length = 0;
    IS(CABINET_NOT_FOUND, cabinet_value_size(database, TEXT("bob"), &length, &error));
    OK(cabinet_transaction_commit(one, &error));
    OK(cabinet_value_size(database, TEXT("bob"), &length, &error));
    IS(CABINET_CONFLICT, cabinet_transaction_commit(other, &error));
    IS(CABINET_CLOSED, cabinet_transaction_commit(other, &error));
    IS(CABINET_CLOSED, cabinet_put(one, TEXT("a"), TEXT("b"), &error));
    IS(CABINET_UNSUPPORTED, cabinet_transaction_commit(database, &error));
    cabinet_database_free(one);
    cabinet_database_free(other);

    /* One within another, and discarded changes. */
    OK(cabinet_transaction_begin(database, &one, &error));
    OK(cabinet_transaction_begin(one, &inner, &error));
    OK(cabinet_put(inner, TEXT("carol"), TEXT("1"), &error));
    OK(cabinet_transaction_commit(inner, &error));
    cabinet_database_free(inner);
    CHECK(has(one, "carol", "1"));
    IS(CABINET_UNSUPPORTED, cabinet_handle(one, 0, &inner, &error));
    OK(cabinet_close(one, &error));
    OK(cabinet_close(one, &error));
    cabinet_database_free(one);
    IS(CABINET_NOT_FOUND, cabinet_value_size(database, TEXT("carol"), &length, &error));

    /* The database is closed first. */
    OK(cabinet_transaction_begin(database, &one, &error));
    OK(cabinet_close(database, &error));
    IS(CABINET_CLOSED, cabinet_put(one, TEXT("a"), TEXT("b"), &error));
    IS(CABINET_CLOSED, cabinet_transaction_commit(one, &error));
    cabinet_database_free(database);
    cabinet_database_free(one);
}

/* Returns the keys of an iteration. */
static void iterate(cabinet_database *database, const cabinet_iterate_options *options,
                    const char *keys) {
    ERROR;
    cabinet_iterator *iterator = NULL;
    const cabinet_record *record = NULL;
    seen_t seen = seen_by(database);
    OK(cabinet_iterate(database, options, &iterator, &error));
    cabinet_status status;
    while ((status = cabinet_iterator_next(iterator, &record, &error)) == CABINET_OK) {
        note_key(&seen, record);
        int has_value = options == NULL || !(options->flags & CABINET_ITERATE_KEYS);
        CHECK(record->value_length == (has_value ? 1U : 0U));
    }
    CHECK(status == CABINET_NOT_FOUND);
    IS(CABINET_NOT_FOUND, cabinet_iterator_next(iterator, &record, &error));
    cabinet_iterator_free(iterator);
    if (strcmp(seen.seen, keys) != 0) {
        fprintf(stderr, "[%s] in place of [%s]\n", seen.seen, keys);
        exit(1);
    }
}

static cabinet_iterate_options range(const char *begin, const char *end, uint32_t flags) {
    cabinet_iterate_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = flags;
    options.begin = begin;
    options.begin_length = begin ? strlen(begin) : 0;
    options.end = end;
    options.end_length = end ? strlen(end) : 0;
    return options;
}

static cabinet_iterate_options prefix(const char *text, uint32_t flags) {
    cabinet_iterate_options options = range(NULL, NULL, flags);
    options.prefix = text;
    options.prefix_length = strlen(text);
    return options;
}

static void iterations(const char *name, int is_tree) {
    ERROR;
    cabinet_database *database = open_in_folder(name);
    const char *keys[] = {"a", "ab", "abc", "b", "bc", "c\xff", "c\xff\xff"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        OK(cabinet_put(database, TEXT(keys[i]), "v", 1, &error));
    }
    iterate(database, NULL, "a ab abc b bc c\xff c\xff\xff ");
    cabinet_iterate_options options = range("ab", "bc", 0);
    iterate(database, &options, "ab abc b ");
    options = range("ab", "bc", CABINET_ITERATE_AFTER_BEGIN | CABINET_ITERATE_WITH_END);
    iterate(database, &options, "abc b bc ");
    options = range("b", NULL, CABINET_ITERATE_KEYS);
    iterate(database, &options, "b bc c\xff c\xff\xff ");
    options = range("c", "a", 0);
    iterate(database, &options, "");
    options = prefix("ab", 0);
    iterate(database, &options, "ab abc ");
    options = prefix("ab", CABINET_ITERATE_KEYS);
    iterate(database, &options, "ab abc ");

    cabinet_iterator *iterator = NULL;
    if (is_tree) {
        const uint32_t reverse = CABINET_ITERATE_REVERSE;
        options = range(NULL, NULL, reverse);
        iterate(database, &options, "c\xff\xff c\xff bc b abc ab a ");
        options = range("ab", "bc", reverse);
        iterate(database, &options, "b abc ab ");
        options = range("ab", "bc", reverse | CABINET_ITERATE_AFTER_BEGIN | CABINET_ITERATE_WITH_END);
        iterate(database, &options, "bc b abc ");
        options = range("bb", NULL, reverse | CABINET_ITERATE_KEYS);
        iterate(database, &options, "c\xff\xff c\xff bc ");
        options = prefix("ab", reverse);
        iterate(database, &options, "abc ab ");
        options = prefix("c\xff", reverse);
        iterate(database, &options, "c\xff\xff c\xff ");
        options = prefix("x", reverse);
        iterate(database, &options, "");
        options = range("c", "a", reverse);
        iterate(database, &options, "");
    } else {
        options = range(NULL, NULL, CABINET_ITERATE_REVERSE);
        IS(CABINET_UNSUPPORTED, cabinet_iterate(database, &options, &iterator, &error));
    }
    options = prefix("ab", 0);
    options.begin = "a";
    options.begin_length = 1;
    IS(CABINET_INVALID, cabinet_iterate(database, &options, &iterator, &error));
    options = range(NULL, NULL, 1U << 30);
    IS(CABINET_INVALID, cabinet_iterate(database, &options, &iterator, &error));

    seen_t seen = seen_by(database);
    OK(cabinet_for_each(database, note_key, &seen, &error));
    CHECK(seen.calls == 7);
    seen.calls = 0;
    seen.stop_after = 2;
    IS(CABINET_STOPPED, cabinet_for_each(database, note_key, &seen, &error));
    CHECK(seen.calls == 2);
    seen = seen_by(database);
    OK(cabinet_for_each_match(database, TEXT("^ab"), note_key, &seen, &error));
    CHECK(strcmp(seen.seen, "ab abc ") == 0);
    seen.stop_after = 3;
    IS(CABINET_STOPPED, cabinet_for_each_match(database, TEXT("*C"), note_key, &seen, &error));
    IS(CABINET_INVALID, cabinet_for_each_match(database, TEXT("("), note_key, &seen, &error));
    seen = seen_by(database);
    OK(cabinet_for_each(database, call_back, &seen, &error));
    CHECK(seen.calls == 7);

    /* A record that was lent outlives the closing of the database. Records that were read ahead are
       not returned after it, and no iterator is at its end. */
    cabinet_iterator *others[3] = {NULL, NULL, NULL};
    const cabinet_record *record = NULL;
    const cabinet_record *other = NULL;
    OK(cabinet_iterate(database, NULL, &iterator, &error));
    OK(cabinet_iterator_next(iterator, &record, &error));
    OK(cabinet_iterate(database, NULL, &others[0], &error));
    options = range("ab", "bc", is_tree ? CABINET_ITERATE_REVERSE : CABINET_ITERATE_KEYS);
    OK(cabinet_iterate(database, &options, &others[1], &error));
    OK(cabinet_iterate(database, &options, &others[2], &error));
    OK(cabinet_iterator_next(others[2], &other, &error));
    OK(cabinet_close(database, &error));
    CHECK(is_text(record->key, record->key_length, "a"));
    CHECK(is_text(other->key, other->key_length, is_tree ? "b" : "ab"));
    cabinet_database_free(database);
    for (int call = 0; call < 3; call++) {
        IS(CABINET_CLOSED, cabinet_iterator_next(iterator, &record, &error));
        for (int i = 0; i < 3; i++) {
            IS(CABINET_CLOSED, cabinet_iterator_next(others[i], &record, &error));
        }
    }
    cabinet_iterator_free(iterator);
    for (int i = 0; i < 3; i++) {
        cabinet_iterator_free(others[i]);
    }
    cabinet_iterator_free(NULL);
}

/* What is called back with a record, and moves before and after a callback. */
typedef struct {
    cabinet_iterator *iterators[2];
    cabinet_cursor *cursor;
} moved_t;

static int move_in_callback(void *context, const cabinet_record *called_with) {
    ERROR;
    moved_t *moved = (moved_t *)context;
    const cabinet_record *record = NULL;
    CHECK(called_with->key_length == 1);
    for (int i = 0; i < 2; i++) {
        IS(CABINET_REENTRANT, cabinet_iterator_next(moved->iterators[i], &record, &error));
    }
    IS(CABINET_REENTRANT, cabinet_cursor_next(moved->cursor, &error));
    IS(CABINET_REENTRANT, cabinet_cursor_first(moved->cursor, &error));
    IS(CABINET_REENTRANT, cabinet_cursor_remove(moved->cursor, &error));
    return 0;
}

/* Calls in a callback fail, and leave iterators and cursors where they were. */
static void movements_in_callbacks(void) {
    ERROR;
    cabinet_database *database = open_in_folder("callbacks.tcb");
    moved_t moved;
    const cabinet_record *record = NULL;
    OK(cabinet_put(database, TEXT("a"), TEXT("1"), &error));
    OK(cabinet_put(database, TEXT("b"), TEXT("2"), &error));
    cabinet_iterate_options options = range(NULL, NULL, CABINET_ITERATE_REVERSE);
    OK(cabinet_iterate(database, NULL, &moved.iterators[0], &error));
    OK(cabinet_iterate(database, &options, &moved.iterators[1], &error));
    OK(cabinet_cursor_create(database, &moved.cursor, &error));
    OK(cabinet_cursor_first(moved.cursor, &error));
    OK(cabinet_for_each(database, move_in_callback, &moved, &error));
    OK(cabinet_cursor_next(moved.cursor, &error));
    OK(cabinet_cursor_record(moved.cursor, &record, &error));
    CHECK(is_text(record->key, record->key_length, "b"));
    for (int i = 0; i < 2; i++) {
        OK(cabinet_iterator_next(moved.iterators[i], &record, &error));
        CHECK(is_text(record->key, record->key_length, i == 0 ? "a" : "b"));
        OK(cabinet_iterator_next(moved.iterators[i], &record, &error));
        CHECK(is_text(record->key, record->key_length, i == 0 ? "b" : "a"));
        IS(CABINET_NOT_FOUND, cabinet_iterator_next(moved.iterators[i], &record, &error));
        cabinet_iterator_free(moved.iterators[i]);
    }
    cabinet_cursor_free(moved.cursor);
    cabinet_database_free(database);
}

/* A movement that would wait, past very many pages without records, leaves a cursor and an iterator
   where they were. Compaction may make it one that does not wait. */
static void movements_that_would_wait(void) {
    ERROR;
    enum { RECORDS = 2000 };
    cabinet_database *database = open_in_folder("movements.tcb");
    cabinet_database *handle = NULL;
    cabinet_cursor *cursor = NULL;
    cabinet_iterator *iterator = NULL;
    const cabinet_record *record = NULL;
    cabinet_status status;
    char key[16];
    char value[1000];
    memset(value, 'v', sizeof value);
    OK(cabinet_put(database, TEXT("a"), TEXT("1"), &error));
    for (int i = 0; i < RECORDS; i++) {
        snprintf(key, sizeof key, "k%06d", i);
        OK(cabinet_put(database, TEXT(key), value, sizeof value, &error));
    }
    OK(cabinet_put(database, TEXT("z"), TEXT("2"), &error));
    for (int i = 0; i < RECORDS; i++) {
        snprintf(key, sizeof key, "k%06d", i);
        OK(cabinet_remove(database, TEXT(key), &error));
    }
    OK(cabinet_handle(database, CABINET_NONBLOCKING, &handle, &error));
    OK(cabinet_cursor_create(handle, &cursor, &error));
    OK(cabinet_cursor_jump(cursor, TEXT("a"), &error));
    for (int call = 0; call < 3; call++) {
        status = cabinet_cursor_next(cursor, NULL);
        CHECK(status == CABINET_WOULD_BLOCK || status == CABINET_OK);
        OK(cabinet_cursor_record(cursor, &record, &error));
        CHECK(is_text(record->key, record->key_length, status == CABINET_OK ? "z" : "a"));
        if (status == CABINET_OK) {
            OK(cabinet_cursor_jump(cursor, TEXT("a"), &error));
        }
    }
    cabinet_iterate_options options = range(NULL, NULL, CABINET_ITERATE_REVERSE);
    OK(cabinet_iterate(handle, &options, &iterator, &error));
    OK(cabinet_iterator_next(iterator, &record, &error));
    CHECK(is_text(record->key, record->key_length, "z"));
    status = cabinet_iterator_next(iterator, &record, NULL);
    for (int call = 0; call < 3 && status != CABINET_OK; call++) {
        CHECK(status == CABINET_WOULD_BLOCK);
        status = cabinet_iterator_next(iterator, &record, NULL);
    }
    cabinet_iterator_free(iterator);
    options = range(NULL, "y", CABINET_ITERATE_REVERSE);
    OK(cabinet_iterate(handle, &options, &iterator, &error));
    status = cabinet_iterator_next(iterator, &record, NULL);
    for (int call = 0; call < 3 && status != CABINET_OK; call++) {
        CHECK(status == CABINET_WOULD_BLOCK);
        status = cabinet_iterator_next(iterator, &record, NULL);
    }
    cabinet_iterator_free(iterator);

    /* A removal that fails as it cannot move on has not removed. */
    status = cabinet_cursor_remove(cursor, NULL);
    if (status == CABINET_WOULD_BLOCK) {
        CHECK(has(database, "a", "1"));
        OK(cabinet_cursor_record(cursor, &record, &error));
    } else {
        CHECK(status == CABINET_OK);
    }
    cabinet_cursor_free(cursor);
    cabinet_database_free(handle);
    cabinet_database_free(database);
}

static void iterations_without_order(void) {
    ERROR;
    cabinet_database *database = open_in_folder("iterations.tch");
    cabinet_iterator *iterator = NULL;
    OK(cabinet_put(database, TEXT("ab"), TEXT("1"), &error));
    OK(cabinet_put(database, TEXT("b"), TEXT("2"), &error));
    cabinet_iterate_options options = prefix("a", 0);
    iterate(database, &options, "ab ");
    options = range("a", NULL, 0);
    IS(CABINET_UNSUPPORTED, cabinet_iterate(database, &options, &iterator, &error));
    options = prefix("a", CABINET_ITERATE_REVERSE);
    IS(CABINET_UNSUPPORTED, cabinet_iterate(database, &options, &iterator, &error));
    cabinet_database_free(database);
}

static void duplicates_and_cursors(void) {
    ERROR;
    cabinet_database *database = open_in_folder("cursors.tcb");
    uint64_t version = 0;
    size_t count = 0;
    OK(cabinet_put(database, TEXT("k"), TEXT("2"), &error));
    OK(cabinet_put_duplicate(database, TEXT("k"), TEXT("3"), CABINET_AFTER, NULL, &version,
                             &error));
    CHECK(version != 0);
    OK(cabinet_put_duplicate(database, TEXT("k"), TEXT("1"), CABINET_BEFORE, NULL, NULL, &error));
    IS(CABINET_INVALID,
       cabinet_put_duplicate(database, TEXT("k"), TEXT("1"), 9, NULL, NULL, &error));
    OK(cabinet_count_duplicates(database, TEXT("k"), &count, &error));
    CHECK(count == 3);
    seen_t seen = seen_by(database);
    OK(cabinet_for_each_duplicate(database, TEXT("k"), note_value, &seen, &error));
    CHECK(strcmp(seen.seen, "1 2 3 ") == 0);
    seen.stop_after = 4;
    IS(CABINET_STOPPED,
       cabinet_for_each_duplicate(database, TEXT("k"), note_value, &seen, &error));
    seen = seen_by(database);
    OK(cabinet_read_duplicate(database, TEXT("k"), 2, note_value, &seen, &error));
    CHECK(strcmp(seen.seen, "3 ") == 0);
    IS(CABINET_NOT_FOUND,
       cabinet_read_duplicate(database, TEXT("k"), 3, note_value, &seen, &error));

    cabinet_cursor *cursor = NULL;
    const cabinet_record *record = NULL;
    OK(cabinet_put(database, TEXT("m"), TEXT("4"), &error));
    OK(cabinet_cursor_create(database, &cursor, &error));
    IS(CABINET_NOT_FOUND, cabinet_cursor_record(cursor, &record, &error));
    OK(cabinet_cursor_first(cursor, &error));
    OK(cabinet_cursor_record(cursor, &record, &error));
    CHECK(is_text(record->value, record->value_length, "1"));
    OK(cabinet_cursor_next(cursor, &error));
    OK(cabinet_cursor_put(cursor, TEXT("II"), CABINET_CURRENT, &error));
    OK(cabinet_cursor_put(cursor, TEXT("2.5"), CABINET_AFTER, &error));
    OK(cabinet_cursor_put(cursor, TEXT("2.4"), CABINET_BEFORE, &error));
    IS(CABINET_INVALID, cabinet_cursor_put(cursor, TEXT("x"), 9, &error));
    OK(cabinet_cursor_previous(cursor, &error));
    OK(cabinet_cursor_remove(cursor, &error));
    OK(cabinet_cursor_record(cursor, &record, &error));
    CHECK(is_text(record->value, record->value_length, "2.4"));
    seen = seen_by(database);
    OK(cabinet_for_each_duplicate(database, TEXT("k"), note_value, &seen, &error));
    CHECK(strcmp(seen.seen, "1 2.4 2.5 3 ") == 0);
    OK(cabinet_cursor_last(cursor, &error));
    OK(cabinet_cursor_record(cursor, &record, &error));
    CHECK(is_text(record->key, record->key_length, "m"));
    IS(CABINET_NOT_FOUND, cabinet_cursor_next(cursor, &error));
    IS(CABINET_NOT_FOUND, cabinet_cursor_remove(cursor, &error));
    OK(cabinet_cursor_jump(cursor, TEXT("l"), &error));
    OK(cabinet_cursor_jump_back(cursor, TEXT("l"), &error));
    OK(cabinet_cursor_record(cursor, &record, &error));
    CHECK(is_text(record->value, record->value_length, "3"));
    IS(CABINET_NOT_FOUND, cabinet_cursor_jump(cursor, TEXT("n"), &error));
    OK(cabinet_remove_duplicates(database, TEXT("k"), &count, &error));
    CHECK(count == 4);

    cabinet_database_free(database);
    IS(CABINET_CLOSED, cabinet_cursor_first(cursor, &error));
    IS(CABINET_CLOSED, cabinet_cursor_record(cursor, &record, &error));
    cabinet_cursor_free(cursor);
    cabinet_cursor_free(NULL);

    database = open_in_folder("*");
    IS(CABINET_UNSUPPORTED, cabinet_cursor_create(database, &cursor, &error));
    IS(CABINET_UNSUPPORTED, cabinet_count_duplicates(database, TEXT("k"), &count, &error));
    cabinet_database_free(database);
}

static void put_person(cabinet_database *table, const char *key, const char *name,
                       const char *age) {
    ERROR;
    cabinet_row *row = cabinet_row_create();
    OK(cabinet_row_set(row, TEXT("name"), TEXT(name), &error));
    OK(cabinet_row_set(row, TEXT("age"), TEXT(age), &error));
    OK(cabinet_row_put(table, TEXT(key), row, &error));
    cabinet_row_free(row);
}

static int note_row(void *context, const char *key, size_t key_length, const cabinet_row *row) {
    ERROR;
    seen_t *seen = (seen_t *)context;
    note(seen, key, key_length);
    CHECK((row != NULL) == (seen->status == 0));
    if (row != NULL) {
        const char *name = NULL;
        size_t length = 0;
        OK(cabinet_row_get(row, TEXT("name"), &name, &length, &error));
        CHECK(length > 0);
    }
    /* The results of a query may call the table, but not close it. */
    uint64_t count = 0;
    OK(cabinet_count(seen->database, &count, &error));
    IS(CABINET_REENTRANT, cabinet_close(seen->database, &error));
    cabinet_database *transaction = NULL;
    OK(cabinet_transaction_begin(seen->database, &transaction, &error));
    OK(cabinet_put(transaction, TEXT("visited"), "name\0Vis", 8, &error));
    OK(cabinet_transaction_commit(transaction, &error));
    cabinet_database_free(transaction);
    OK(cabinet_remove(seen->database, TEXT("visited"), &error));
    return seen->calls == seen->stop_after;
}

/* Rows that are stored by a deferred handle need not be durable when the call returns. */
static void deferred_rows(void) {
    ERROR;
    cabinet_database *table = open_in_folder("deferred.tct#durability=always");
    cabinet_database *deferred = NULL;
    cabinet_database *further = NULL;
    OK(cabinet_handle(table, CABINET_DEFERRED, &deferred, &error));
    OK(cabinet_handle(deferred, 0, &further, &error));
    cabinet_database *handles[] = {deferred, further};
    for (int i = 0; i < 2; i++) {
        uint64_t appended = 0;
        uint64_t durable = 0;
        int waiting = 0;
        for (int j = 0; j < 100; j++) {
            put_person(handles[i], "key", "Ann", "34");
            OK(cabinet_log_position(table, &appended, &durable, &error));
            waiting += durable < appended;
        }
        CHECK(waiting > 0);
        OK(cabinet_wait_durable(table, appended, &error));
    }
    cabinet_database_free(further);
    cabinet_database_free(deferred);
    cabinet_database_free(table);
}

static void tables(void) {
    ERROR;
    cabinet_database *table = open_in_folder("people.tct");
    OK(cabinet_index_set(table, TEXT("age"), CABINET_INDEX_DECIMAL, 0, &error));
    OK(cabinet_index_set(table, TEXT("age"), CABINET_INDEX_DECIMAL, 0, &error));
    OK(cabinet_index_set(table, TEXT("age"), CABINET_INDEX_DECIMAL, CABINET_INDEX_REBUILD, &error));
    OK(cabinet_index_set(table, TEXT("name"), CABINET_INDEX_LEXICAL, 0, &error));
    OK(cabinet_index_set(table, TEXT("name"), CABINET_INDEX_TOKEN, 0, &error));
    OK(cabinet_index_set(table, TEXT("name"), CABINET_INDEX_GRAM, 0, &error));
    OK(cabinet_index_remove(table, TEXT("name"), &error));
    IS(CABINET_INDEX, cabinet_index_remove(table, TEXT("name"), &error));
    IS(CABINET_INVALID, cabinet_index_set(table, TEXT("age"), 9, 0, &error));
    put_person(table, "p1", "Ann", "34");
    put_person(table, "p2", "Bob", "9");
    put_person(table, "p3", "Cid", "52");

    cabinet_row *row = NULL;
    OK(cabinet_row_read(table, TEXT("p1"), &row, &error));
    const char *name = NULL, *value = NULL;
    size_t name_length = 0, length = 0;
    OK(cabinet_row_get(row, TEXT("age"), &value, &length, &error));
    CHECK(is_text(value, length, "34") && cabinet_row_length(row) == 2);
    IS(CABINET_NOT_FOUND, cabinet_row_get(row, TEXT("x"), &value, &length, &error));
    OK(cabinet_row_column(row, 0, &name, &name_length, &value, &length, &error));
    CHECK(is_text(name, name_length, "name") && is_text(value, length, "Ann"));
    IS(CABINET_NOT_FOUND,
       cabinet_row_column(row, 2, &name, &name_length, &value, &length, &error));
    IS(CABINET_EXISTS, cabinet_row_add(table, TEXT("p1"), row, &error));
    OK(cabinet_row_remove(row, TEXT("age"), &error));
    IS(CABINET_NOT_FOUND, cabinet_row_remove(row, TEXT("age"), &error));
    IS(CABINET_INVALID, cabinet_row_set(row, "", 0, TEXT("x"), &error));
    OK(cabinet_row_add(table, TEXT("p4"), row, &error));
    cabinet_row_free(row);
    cabinet_row_free(NULL);
    CHECK(cabinet_row_length(NULL) == 0);
    IS(CABINET_NOT_FOUND, cabinet_row_read(table, TEXT("x"), &row, &error));
    CHECK(row == NULL);
    uint64_t id = 0, next = 0;
    OK(cabinet_generate_id(table, &id, &error));
    OK(cabinet_generate_id(table, &next, &error));
    CHECK(id == 1 && next == 2);

    cabinet_query *query = cabinet_query_create();
    cabinet_query_report *report = NULL;
    OK(cabinet_query_add(query, TEXT("age"), CABINET_NUMBER_GREATER_EQUAL, TEXT("18"), 0, &error));
    OK(cabinet_query_order(query, TEXT("age"), CABINET_SORT_NUMBER_DESCENDING, &error));
    OK(cabinet_query_limit(query, 10, 0, &error));
    seen_t seen = seen_by(table);
    OK(cabinet_search(table, query, 0, note_row, &seen, &report, &error));
    CHECK(strcmp(seen.seen, "p3 p1 ") == 0);
    CHECK(cabinet_query_report_count(report) == 2);
    CHECK(strstr(cabinet_query_report_plan(report), "age") != NULL);
    CHECK(cabinet_query_report_entries_read(report) >= 2);
    CHECK(cabinet_query_report_rows_read(report) < 5);
    cabinet_query_report_free(report);
    cabinet_query_report_free(NULL);
    seen = seen_by(table);
    seen.status = 1;
    seen.stop_after = 1;
    IS(CABINET_STOPPED,
       cabinet_search(table, query, CABINET_SEARCH_KEYS, note_row, &seen, NULL, &error));
    CHECK(strcmp(seen.seen, "p3 ") == 0);
    OK(cabinet_search(table, query, 0, NULL, NULL, &report, &error));
    CHECK(cabinet_query_report_count(report) == 2);
    cabinet_query_report_free(report);
    IS(CABINET_INVALID, cabinet_search(table, query, 3, note_row, &seen, NULL, &error));
    uint64_t count = 0;
    OK(cabinet_query_limit(query, UINT64_MAX, 1, &error));
    OK(cabinet_search_count(table, query, &count, &error));
    CHECK(count == 1);
    OK(cabinet_query_limit(query, UINT64_MAX, 0, &error));
    seen = seen_by(table);
    OK(cabinet_search(table, query, CABINET_SEARCH_REMOVE, note_row, &seen, &report, &error));
    CHECK(cabinet_query_report_count(report) == 2 && seen.calls == 2);
    cabinet_query_report_free(report);
    OK(cabinet_count(table, &count, &error));
    CHECK(count == 2);

    IS(CABINET_INVALID,
       cabinet_query_add(query, TEXT("age"), CABINET_NUMBER_LESS, TEXT("x"), 0, &error));
    IS(CABINET_INVALID, cabinet_query_add(query, TEXT("age"), 99, TEXT("1"), 0, &error));
    IS(CABINET_INVALID, cabinet_query_add(query, TEXT("age"), 0, TEXT("1"), 64, &error));
    IS(CABINET_INVALID, cabinet_query_order(query, TEXT("age"), 9, &error));
    cabinet_query_free(query);
    cabinet_query_free(NULL);
    query = cabinet_query_create();
    OK(cabinet_query_add(query, TEXT("name"), CABINET_STRING_EQUAL, TEXT("Bob"),
                         CABINET_CONDITION_NEGATED | CABINET_CONDITION_WITHOUT_INDEX, &error));
    OK(cabinet_search_count(table, query, &count, &error));
    CHECK(count == 1);
    cabinet_database_free(table);

    cabinet_database *database = open_in_folder("*");
    IS(CABINET_UNSUPPORTED, cabinet_search_count(database, query, &count, &error));
    IS(CABINET_UNSUPPORTED, cabinet_generate_id(database, &id, &error));
    cabinet_query_free(query);
    cabinet_database_free(database);
    CHECK(cabinet_query_report_plan(NULL)[0] == 0);
}

static int note_statistic(void *context, const char *name, const char *value) {
    (void)value;
    seen_t *seen = (seen_t *)context;
    seen->calls++;
    CHECK(name[0] != 0);
    return seen->calls == seen->stop_after;
}

static void note_damage(void *context, const char *file, uint64_t offset,
                        const char *description) {
    (void)offset;
    ((seen_t *)context)->calls++;
    CHECK(file[0] != 0 && description[0] != 0);
}

/* Changes a byte of a value on the disk. */
static void damage(const char *name) {
    char command[1024];
    char *path = path_of(name);
    snprintf(command, sizeof command,
             "set -e; cd '%s'; file=$(grep -la 'damaged value' * | head -1);"
             "at=$(grep -abo 'damaged value' \"$file\" | head -1 | cut -d: -f1);"
             "printf X | dd of=\"$file\" bs=1 seek=\"$at\" conv=notrunc 2>/dev/null",
             path);
    CHECK(system(command) == 0);
    free(path);
}

static void the_whole(void) {
    ERROR;
    cabinet_database *database = open_in_folder("whole.tch#durability=interval:50");
    int32_t number = -1;
    uint64_t interval = 0, appended = 0, durable = 0, damages = 9, read = 0, copied = 0;
    OK(cabinet_durability(database, &number, &interval, &error));
    CHECK(number == CABINET_DURABILITY_INTERVAL && interval == 50);
    OK(cabinet_kind(database, &number, &error));
    CHECK(number == CABINET_KIND_HASH);
    char *path = NULL;
    OK(cabinet_path(database, &path, &error));
    CHECK(strstr(path, "whole.tch") != NULL);
    cabinet_free(path);
    OK(cabinet_put(database, TEXT("kept"), TEXT("kept value"), &error));
    OK(cabinet_put(database, TEXT("damaged"), TEXT("damaged value"), &error));
    OK(cabinet_log_position(database, &appended, &durable, &error));
    CHECK(appended > 0 && durable <= appended);
    OK(cabinet_wait_durable(database, appended, &error));
    OK(cabinet_log_position(database, NULL, &durable, &error));
    CHECK(durable >= appended);
    IS(CABINET_INVALID, cabinet_wait_durable(database, appended + 1000000, &error));
    OK(cabinet_sync(database, &error));
    OK(cabinet_optimize(database, &error));
    seen_t seen = seen_by(database);
    OK(cabinet_stats(database, note_statistic, &seen, &error));
    CHECK(seen.calls > 3);
    seen.stop_after = ++seen.calls;
    seen.calls--;
    IS(CABINET_STOPPED, cabinet_stats(database, note_statistic, &seen, &error));
    seen = seen_by(database);
    OK(cabinet_verify(database, 0, note_damage, &seen, &damages, &read, &error));
    CHECK(damages == 0 && read >= 2 && seen.calls == 0);

    /* Handles that behave differently. */
    cabinet_database *deferred = NULL;
    OK(cabinet_handle(database, CABINET_DEFERRED | CABINET_NONBLOCKING, &deferred, &error));
    OK(cabinet_put(deferred, TEXT("deferred"), TEXT("1"), &error));
    IS(CABINET_INVALID, cabinet_handle(database, 64, &deferred, &error));
    OK(cabinet_close(deferred, &error));
    CHECK(has(database, "deferred", "1"));
    cabinet_database_free(deferred);
    OK(cabinet_handle(database, 0, &deferred, &error));

    char *copy = path_of("copy.tch");
    OK(cabinet_backup(database, copy, &error));
    IS(CABINET_IO, cabinet_backup(database, copy, &error));
    char *source = path_of("whole.tch");
    cabinet_database *second = NULL;
    IS(CABINET_IN_USE, cabinet_open(source, &second, &error));
    OK(cabinet_close(database, &error));
    IS(CABINET_CLOSED, cabinet_put(deferred, TEXT("k"), TEXT("v"), &error));
    IS(CABINET_CLOSED, cabinet_sync(database, &error));
    cabinet_database_free(deferred);
    cabinet_database_free(database);

    OK(cabinet_check(copy, note_damage, &seen, &damages, &read, &error));
    CHECK(damages == 0 && read == 3 && seen.calls == 0);
    damage("copy.tch");
    OK(cabinet_check(copy, note_damage, &seen, &damages, NULL, &error));
    CHECK(damages == 1 && seen.calls == 1);
    OK(cabinet_check(copy, NULL, NULL, NULL, NULL, &error));
    cabinet_database *saved = open_in_folder("saved.tch");
    OK(cabinet_salvage(copy, saved, note_damage, &seen, &copied, &error));
    CHECK(copied >= 2 && has(saved, "kept", "kept value"));
    cabinet_database_free(saved);
    char *none = path_of("none.tch");
    IS(CABINET_IO, cabinet_check(none, NULL, NULL, NULL, NULL, &error));
    free(none);
    free(source);
    free(copy);
}

static void openings(void) {
    ERROR;
    cabinet_database *database = NULL;
    IS(CABINET_INVALID, cabinet_open("casket.unknown", &database, &error));
    IS(CABINET_INVALID, cabinet_open("casket.tch#bnum", &database, &error));
    IS(CABINET_INVALID, cabinet_open("\xff.tch", &database, &error));
    CHECK(database == NULL);
    CHECK(cabinet_open("casket.unknown", &database, NULL) == CABINET_INVALID);
    CHECK(cabinet_open("casket.unknown", &database, &error) == CABINET_INVALID);
    CHECK(strstr(cabinet_error_text(error), "casket.unknown") != NULL);
    CHECK(strstr(cabinet_error_advice(error), ".tch") != NULL);
    cabinet_error_free(error);
    error = NULL;
    cabinet_error_free(NULL);
    CHECK(cabinet_error_code(NULL) == 0 && cabinet_error_text(NULL)[0] == 0);
    CHECK(strcmp(cabinet_status_name(CABINET_IN_USE), "in use") == 0);
    CHECK(strcmp(cabinet_status_name(12345), "unknown") == 0);
    CHECK(cabinet_version()[0] == '0');

    database = open_in_folder("tuned.tch#bnum=1000#compression=zstd");
    OK(cabinet_put(database, TEXT("k"), TEXT("v"), &error));
    cabinet_database_free(database);
    cabinet_database_free(NULL);

    char *path = path_of("tuned.tch");
    char *other = path_of("no_suffix");
    cabinet_open_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = CABINET_OPEN_READ_ONLY;
    OK(cabinet_open_path(path, &options, &database, &error));
    CHECK(has(database, "k", "v"));
    IS(CABINET_READ_ONLY, cabinet_put(database, TEXT("k"), TEXT("v"), &error));
    cabinet_database *second = NULL;
    OK(cabinet_open_path(path, &options, &second, &error));
    CHECK(has(second, "k", "v"));
    cabinet_database_free(second);
    IS(CABINET_IN_USE, cabinet_open_path(path, NULL, &second, &error));
    cabinet_database_free(database);
    options.flags = CABINET_OPEN_NO_CREATE;
    options.kind = CABINET_KIND_TREE;
    IS(CABINET_IO, cabinet_open_path(other, &options, &database, &error));
    IS(CABINET_INVALID, cabinet_open_path(path, &options, &database, &error));
    options.flags = 0;
    options.durability = CABINET_DURABILITY_ALWAYS;
    options.compression = CABINET_COMPRESSION_LZ4;
    options.order = CABINET_ORDER_INT64;
    options.cache_bytes = 1 << 20;
    OK(cabinet_open_path(other, &options, &database, &error));
    OK(cabinet_put(database, TEXT("12345678"), TEXT("v"), &error));
    int32_t number = 0;
    OK(cabinet_durability(database, &number, NULL, &error));
    CHECK(number == CABINET_DURABILITY_ALWAYS);
    cabinet_database_free(database);
    options.flags = CABINET_OPEN_TRUNCATE;
    OK(cabinet_open_path(other, &options, &database, &error));
    uint64_t count = 1;
    OK(cabinet_count(database, &count, &error));
    CHECK(count == 0);
    cabinet_database_free(database);
    memset(&options, 0, sizeof options);
    IS(CABINET_INVALID, cabinet_open_path(path, &options, &database, &error));
    options.size = sizeof options;
    options.durability = 9;
    IS(CABINET_INVALID, cabinet_open_path(path, &options, &database, &error));
    options.durability = 0;
    options.dead_percent_max = 999;
    IS(CABINET_INVALID, cabinet_open_path(path, &options, &database, &error));
    OK(cabinet_open_path(path, NULL, &database, &error));
    cabinet_database_free(database);

    /* Structures of programs that were built for an older and for a newer header. */
    struct {
        cabinet_put_options known;
        uint64_t further;
    } newer;
    memset(&newer, 0, sizeof newer);
    newer.known.size = sizeof newer;
    newer.known.flags = 3;
    OK(cabinet_open("*", &database, &error));
    OK(cabinet_put_with(database, TEXT("k"), TEXT("v"), &newer.known, NULL, &error));
    newer.further = 1;
    IS(CABINET_INVALID,
       cabinet_put_with(database, TEXT("k"), TEXT("v"), &newer.known, NULL, &error));
    newer.known.size = offsetof(cabinet_put_options, flags);
    newer.known.condition = 99;
    OK(cabinet_put_with(database, TEXT("k"), TEXT("v"), &newer.known, NULL, &error));
    cabinet_database_free(database);
    free(path);
    free(other);
}

/* NULL and lengths that no memory has. */
static void wrong_arguments(void) {
    ERROR;
    cabinet_database *database = open_in_folder("*");
    char *value = NULL;
    size_t length = 0;
    const size_t too_long = SIZE_MAX;
    IS(CABINET_INVALID, cabinet_open(NULL, &database, &error));
    IS(CABINET_INVALID, cabinet_open("*", NULL, &error));
    IS(CABINET_INVALID, cabinet_open_path(NULL, NULL, &database, &error));
    IS(CABINET_INVALID, cabinet_close(NULL, &error));
    IS(CABINET_INVALID, cabinet_get(NULL, TEXT("k"), &value, &length, &error));
    IS(CABINET_INVALID, cabinet_get(database, NULL, 1, &value, &length, &error));
    IS(CABINET_INVALID, cabinet_get(database, TEXT("k"), NULL, &length, &error));
    IS(CABINET_INVALID, cabinet_get(database, "k", too_long, &value, &length, &error));
    IS(CABINET_INVALID, cabinet_put(database, TEXT("k"), NULL, 3, &error));
    IS(CABINET_INVALID, cabinet_put(database, TEXT("k"), "v", too_long, &error));
    OK(cabinet_put(database, TEXT("k"), NULL, 0, &error));
    CHECK(has(database, "k", ""));
    OK(cabinet_put(database, NULL, 0, TEXT("empty key"), &error));
    CHECK(has(database, "", "empty key"));
    IS(CABINET_INVALID, cabinet_get_into(database, TEXT(""), NULL, 99, &length, &error));
    IS(CABINET_INVALID, cabinet_read(database, TEXT("k"), NULL, NULL, &error));
    IS(CABINET_INVALID, cabinet_modify(database, TEXT("k"), NULL, NULL, NULL, &error));
    IS(CABINET_INVALID, cabinet_count(database, NULL, &error));
    IS(CABINET_INVALID, cabinet_transaction_begin(database, NULL, &error));
    IS(CABINET_INVALID, cabinet_iterate(NULL, NULL, NULL, &error));
    IS(CABINET_INVALID, cabinet_iterator_next(NULL, NULL, &error));
    IS(CABINET_INVALID, cabinet_cursor_first(NULL, &error));
    IS(CABINET_INVALID, cabinet_row_set(NULL, TEXT("k"), TEXT("v"), &error));
    IS(CABINET_INVALID, cabinet_search(database, NULL, 0, NULL, NULL, NULL, &error));
    char *long_key = (char *)calloc(65537, 1);
    OK(cabinet_put(database, long_key, 65536, TEXT("v"), &error));
    IS(CABINET_TOO_LONG, cabinet_put(database, long_key, 65537, TEXT("v"), &error));
    free(long_key);
    cabinet_database *transaction = NULL;
    OK(cabinet_transaction_begin(database, &transaction, &error));
    IS(CABINET_UNSUPPORTED, cabinet_backup(transaction, "x.tch", &error));
    IS(CABINET_UNSUPPORTED, cabinet_sync(transaction, &error));
    cabinet_database_free(transaction);
    cabinet_database_free(database);
}

/* A child that was forked off gets errors, and the parent goes on. */
static void forks(void) {
    ERROR;
    cabinet_database *database = open_in_folder("forks.tcb");
    cabinet_database *transaction = NULL;
    cabinet_cursor *cursor = NULL;
    cabinet_iterator *iterator = NULL;
    const cabinet_record *record = NULL;
    OK(cabinet_put(database, TEXT("k"), TEXT("v"), &error));
    OK(cabinet_put(database, TEXT("l"), TEXT("v"), &error));
    OK(cabinet_transaction_begin(database, &transaction, &error));
    OK(cabinet_cursor_create(database, &cursor, &error));
    OK(cabinet_iterate(database, NULL, &iterator, &error));
    OK(cabinet_iterator_next(iterator, &record, &error));
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        IS(CABINET_FORKED, cabinet_put(database, TEXT("k"), TEXT("child"), &error));
        IS(CABINET_FORKED, cabinet_transaction_commit(transaction, &error));
        IS(CABINET_FORKED, cabinet_cursor_first(cursor, &error));
        IS(CABINET_FORKED, cabinet_iterator_next(iterator, &record, &error));
        IS(CABINET_FORKED, cabinet_iterator_next(iterator, &record, &error));
        IS(CABINET_FORKED, cabinet_close(database, &error));
        CHECK(is_text(record->key, record->key_length, "k"));
        cabinet_iterator_free(iterator);
        cabinet_cursor_free(cursor);
        cabinet_database_free(transaction);
        cabinet_database_free(database);
        cabinet_database *own = NULL;
        OK(cabinet_open("*", &own, &error));
        OK(cabinet_put(own, TEXT("k"), TEXT("v"), &error));
        cabinet_database_free(own);
        /* Memory of threads that the child does not have would count as lost. */
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(has(database, "k", "v"));
    OK(cabinet_transaction_commit(transaction, &error));
    OK(cabinet_iterator_next(iterator, &record, &error));
    CHECK(is_text(record->key, record->key_length, "l"));
    cabinet_iterator_free(iterator);
    cabinet_cursor_free(cursor);
    cabinet_database_free(transaction);
    cabinet_database_free(database);
}

/* A child that lives on does not keep the databases of a parent that was killed. */
static void killed_parents(void) {
    ERROR;
    int ready[2], ended[2];
    char byte;
    CHECK(pipe(ready) == 0 && pipe(ended) == 0);
    fflush(NULL);
    pid_t parent = fork();
    CHECK(parent >= 0);
    if (parent == 0) {
        cabinet_database *database = open_in_folder("killed.tcb");
        OK(cabinet_put(database, TEXT("k"), TEXT("v"), &error));
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            /* Lives until the test closes its end of the pipe. */
            close(ended[1]);
            CHECK(write(ready[1], "r", 1) == 1);
            CHECK(read(ended[0], &byte, 1) == 0);
            raise(SIGKILL);
        }
        for (;;) {
            pause();
        }
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(kill(parent, SIGKILL) == 0);
    CHECK(waitpid(parent, NULL, 0) == parent);
    cabinet_database *database = open_in_folder("killed.tcb");
    CHECK(has(database, "k", "v"));
    cabinet_database_free(database);
    close(ended[1]);
    close(ended[0]);
    close(ready[0]);
    close(ready[1]);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    folder = arguments[1];
    openings();
    wrong_arguments();
    records("*");
    records("records.tch");
    records("records.tcb");
    modifications();
    batches();
    transactions();
    iterations("iterations.tcb", 1);
    iterations("+", 0);
    iterations_without_order();
    movements_in_callbacks();
    movements_that_would_wait();
    duplicates_and_cursors();
    tables();
    deferred_rows();
    the_whole();
    forks();
    killed_parents();
    puts("functions: passed");
    return 0;
}
