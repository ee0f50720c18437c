/* Threads that share handles, and close them under each other. */

#include "support.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 100 };

static cabinet_database *shared;
/* Threads that have done some work, which the closing thread waits for. */
static int working;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void begin_work(void) {
    pthread_mutex_lock(&lock);
    working++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void start(pthread_t *threads, void *(*work)(void *)) {
    working = 0;
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    }
}

static void wait_for_all(pthread_t *threads) {
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static int sum_lengths(void *context, const cabinet_record *record) {
    *(size_t *)context += record->key_length + record->value_length;
    return 0;
}

/* Counts, reads what others write, and commits transactions that may conflict. */
static void *count(void *unused) {
    ERROR;
    size_t sum = 0;
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        char *value = NULL;
        size_t length = 0;
        OK(cabinet_add_int(shared, TEXT("counter"), 1, NULL, &error));
        OK(cabinet_put(shared, TEXT("text"), TEXT("a value that all threads put"), &error));
        OK(cabinet_get(shared, TEXT("text"), &value, &length, &error));
        CHECK(is_text(value, length, "a value that all threads put"));
        cabinet_free(value);
        OK(cabinet_read(shared, TEXT("text"), sum_lengths, &sum, &error));
        cabinet_status status;
        do {
            cabinet_database *transaction = NULL;
            OK(cabinet_transaction_begin(shared, &transaction, &error));
            OK(cabinet_add_int(transaction, TEXT("committed"), 1, NULL, &error));
            status = cabinet_transaction_commit(transaction, NULL);
            CHECK(status == CABINET_OK || status == CABINET_CONFLICT);
            cabinet_database_free(transaction);
        } while (status != CABINET_OK);
        if (i % 50 == 0) {
            OK(cabinet_for_each(shared, sum_lengths, &sum, &error));
        }
    }
    return NULL;
}

static void counters(const char *name) {
    ERROR;
    pthread_t threads[THREADS];
    shared = open_in_folder(name);
    start(threads, count);
    wait_for_all(threads);
    int32_t sum = 0;
    OK(cabinet_add_int(shared, TEXT("counter"), 0, &sum, &error));
    CHECK(sum == THREADS * ROUNDS);
    OK(cabinet_add_int(shared, TEXT("committed"), 0, &sum, &error));
    CHECK(sum == THREADS * ROUNDS);
    cabinet_database_free(shared);
}

/* Uses a database until it is closed. */
static void *use_until_closed(void *unused) {
    (void)unused;
    cabinet_cursor *cursor = NULL;
    cabinet_iterator *iterator = NULL;
    cabinet_database *transaction = NULL;
    const cabinet_record *record = NULL;
    size_t sum = 0;
    cabinet_status status = CABINET_OK;
    (void)cabinet_cursor_create(shared, &cursor, NULL);
    (void)cabinet_transaction_begin(shared, &transaction, NULL);
    for (int i = 0; status >= 0; i++) {
        if (i == 1) {
            begin_work();
        }
        if (iterator == NULL) {
            status = cabinet_iterate(shared, NULL, &iterator, NULL);
        } else if ((status = cabinet_iterator_next(iterator, &record, NULL)) == CABINET_OK) {
            sum += (size_t)record->key[0] + record->value_length;
        } else {
            cabinet_iterator_free(iterator);
            iterator = NULL;
        }
        if (status >= 0) {
            status = cabinet_put(shared, TEXT("key"), TEXT("value"), NULL);
        }
        if (status >= 0 && transaction != NULL) {
            status = cabinet_put(transaction, TEXT("key"), TEXT("value"), NULL);
        }
        if (status >= 0 && cursor != NULL) {
            status = cabinet_cursor_first(cursor, NULL);
        }
        if (status >= 0) {
            status = cabinet_for_each(shared, sum_lengths, &sum, NULL);
        }
    }
    CHECK(status == CABINET_CLOSED && sum > 0);
    cabinet_iterator_free(iterator);
    cabinet_cursor_free(cursor);
    cabinet_database_free(transaction);
    return NULL;
}

static void closings(const char *name) {
    ERROR;
    for (int round = 0; round < 5; round++) {
        pthread_t threads[THREADS];
        shared = open_in_folder(name);
        OK(cabinet_put(shared, TEXT("first"), TEXT("1"), &error));
        start(threads, use_until_closed);
        pthread_mutex_lock(&lock);
        while (working < THREADS) {
            pthread_cond_wait(&changed, &lock);
        }
        pthread_mutex_unlock(&lock);
        OK(cabinet_close(shared, &error));
        wait_for_all(threads);
        cabinet_database_free(shared);
    }
}

static cabinet_database *committed;

static void *commit(void *unused) {
    ERROR;
    (void)unused;
    OK(cabinet_transaction_commit(committed, &error));
    return NULL;
}

/* A thread that closes a transaction or its database while another one commits returns after it. */
static void closings_beside_a_commit(void) {
    ERROR;
    enum { RECORDS = 3000 };
    char key[16];
    for (int round = 0; round < 4; round++) {
        pthread_t thread;
        shared = open_in_folder("commits.tcb#durability=always");
        OK(cabinet_clear(shared, &error));
        OK(cabinet_transaction_begin(shared, &committed, &error));
        for (int i = 0; i < RECORDS; i++) {
            snprintf(key, sizeof key, "k%d", i);
            OK(cabinet_put(committed, TEXT(key), TEXT("v"), &error));
        }
        CHECK(pthread_create(&thread, NULL, commit, NULL) == 0);
        size_t length;
        while (cabinet_value_size(committed, TEXT("k0"), &length, NULL) == CABINET_OK) {
        }
        /* The commit has begun, as the handle is closed. */
        if (round % 2 == 0) {
            OK(cabinet_close(committed, &error));
        } else {
            OK(cabinet_close(shared, &error));
            cabinet_database_free(shared);
            shared = open_in_folder("commits.tcb");
        }
        CHECK(has(shared, "k0", "v"));
        snprintf(key, sizeof key, "k%d", RECORDS - 1);
        CHECK(has(shared, key, "v"));
        CHECK(pthread_join(thread, NULL) == 0);
        cabinet_database_free(committed);
        cabinet_database_free(shared);
    }
}

static int is_in_callback;

/* Closes the database while another thread does so and waits for the end of this callback. */
static int close_in_callback(void *context, const cabinet_record *record) {
    ERROR;
    (void)context;
    (void)record;
    pthread_mutex_lock(&lock);
    is_in_callback = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    /* The other thread, which waits for this call, has closed the handle. */
    uint64_t count = 0;
    cabinet_status status;
    while ((status = cabinet_count(shared, &count, NULL)) != CABINET_CLOSED) {
        CHECK(status == CABINET_OK || status == CABINET_REENTRANT);
    }
    IS(CABINET_REENTRANT, cabinet_close(shared, &error));
    return 0;
}

static void *visit(void *unused) {
    ERROR;
    (void)unused;
    OK(cabinet_for_each(shared, close_in_callback, NULL, &error));
    return NULL;
}

static void closings_in_a_callback(void) {
    ERROR;
    pthread_t thread;
    shared = open_in_folder("*");
    OK(cabinet_put(shared, TEXT("k"), TEXT("v"), &error));
    CHECK(pthread_create(&thread, NULL, visit, NULL) == 0);
    pthread_mutex_lock(&lock);
    while (!is_in_callback) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    OK(cabinet_close(shared, &error));
    CHECK(pthread_join(thread, NULL) == 0);
    cabinet_database_free(shared);
}

int main(int count_, char **arguments) {
    CHECK(count_ == 2);
    folder = arguments[1];
    counters("*");
    counters("threads.tch");
    counters("threads.tcb");
    closings("closings.tcb");
    closings("*");
    closings_beside_a_commit();
    closings_in_a_callback();
    puts("threads: passed");
    return 0;
}
