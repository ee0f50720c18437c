/*
 * cabinet.h: embedded, persistent key-value databases over one crash-safe log.
 *
 * cbindgen writes this file from crates/capi/src. docs/c.md is the guide, with a first program.
 *
 * RESULTS. A call returns a status. 0 and above are results (CABINET_OK, CABINET_NOT_FOUND ...),
 * below 0 the call failed. The last parameter `error`, which may be NULL, is then set to an error
 * with a code, a text and advice, which the caller frees by cabinet_error_free. Otherwise it is set
 * to NULL; what it held before is not freed. There is no global state: errors belong to their call.
 *
 * POINTERS. A pointer to bytes has its length beside it. Keys and values are any bytes, NUL
 * included. NULL is allowed for the length 0. Names and paths end with a NUL. Other pointers must
 * not be NULL unless the function says so. NULL and lengths that no memory has fail with
 * CABINET_INVALID. The library reads and writes memory of the caller only until the call returns,
 * and keeps copies.
 *
 * OWNERSHIP. The caller frees each object that a function returns by the function named there:
 * cabinet_free for values and paths. What the library lends (`const`) is valid as long as stated.
 * Using an object after it was freed is undefined.
 *
 * MEMORY. If memory runs out, any call may end the process by abort. Only the copy that cabinet_get
 * returns, and the caps of databases in memory, are sure to fail with CABINET_NO_MEMORY.
 *
 * THREADS. All threads may use one cabinet_database at once, and close it while others use it.
 * Other objects (transactions too, as far as the order of their changes matters) are for one thread
 * at a time; no function has an affinity to a thread.
 *
 * CALLBACKS. A function that a call gets is called by the same thread before the call returns. It
 * must not call the same database, which fails with CABINET_REENTRANT, unless its type says so. It
 * must not leave by longjmp or by an exception.
 *
 * FORKS. In a child of the process that has opened a database, calls on it fail with
 * CABINET_FORKED. The child does not keep the databases of a parent that has ended.
 */


#ifndef CABINET_H
#define CABINET_H

#include <stddef.h>
#include <stdint.h>

/**
 * Replace the value of the record at the cursor.
 */
#define CABINET_CURRENT 2

/**
 * Writes return before they are durable, whatever the durability of the database. The caller
 * reads `cabinet_log_position` after a write, and waits by `cabinet_wait_durable`.
 */
#define CABINET_DEFERRED 1

/**
 * Calls on single records and batches, movements of cursors and iterators backwards fail with
 * CABINET_WOULD_BLOCK in place of waiting for the disk, or for another thread that holds a record
 * for long. All other functions wait: those of rows, indices and queries, iterators forwards,
 * `cabinet_for_each`, `cabinet_for_each_match`, and those of the whole database.
 */
#define CABINET_NONBLOCKING 2

/**
 * From the end to the beginning. Trees (`.tcb`) only.
 */
#define CABINET_ITERATE_REVERSE 1

/**
 * Only the keys: values are empty, and need not be read.
 */
#define CABINET_ITERATE_KEYS 2

/**
 * Without the record that `begin` names.
 */
#define CABINET_ITERATE_AFTER_BEGIN 4

/**
 * With the record that `end` names.
 */
#define CABINET_ITERATE_WITH_END 8

/**
 * The kind that the suffix of the path names.
 */
#define CABINET_KIND_BY_NAME 0

/**
 * `.tch`: hash, an index in memory over a log on disk.
 */
#define CABINET_KIND_HASH 1

/**
 * `.tcb`: B+ tree, keys in order, with duplicates and cursors.
 */
#define CABINET_KIND_TREE 2

/**
 * `.tcf`: fixed-length, values under ids.
 */
#define CABINET_KIND_FIXED 3

/**
 * `.tct`: table, rows of columns with indices and queries.
 */
#define CABINET_KIND_TABLE 4

/**
 * `*`: hash in memory.
 */
#define CABINET_KIND_MEMORY_HASH 5

/**
 * `+`: ordered map in memory.
 */
#define CABINET_KIND_MEMORY_TREE 6

/**
 * A write returns when the operating system has it. It survives a killed process, but not a loss
 * of power.
 */
#define CABINET_DURABILITY_NONE 0

/**
 * The same, but a loss of power loses at most the writes of one interval.
 */
#define CABINET_DURABILITY_INTERVAL 1

/**
 * A write returns when it is on the disk. Concurrent writers share one sync.
 */
#define CABINET_DURABILITY_ALWAYS 2

/**
 * Values are stored as they are.
 */
#define CABINET_COMPRESSION_NONE 0

/**
 * Values are compressed with LZ4.
 */
#define CABINET_COMPRESSION_LZ4 1

/**
 * Values are compressed with Zstandard.
 */
#define CABINET_COMPRESSION_ZSTD 2

/**
 * The order that the tree has; lexical for a new one.
 */
#define CABINET_ORDER_KEPT 0

/**
 * Keys in the order of their bytes.
 */
#define CABINET_ORDER_LEXICAL 1

/**
 * Keys in the order of decimal numbers.
 */
#define CABINET_ORDER_DECIMAL 2

/**
 * Keys in the order of little-endian 32-bit integers.
 */
#define CABINET_ORDER_INT32 3

/**
 * Keys in the order of little-endian 64-bit integers.
 */
#define CABINET_ORDER_INT64 4

/**
 * Refuse writes.
 */
#define CABINET_OPEN_READ_ONLY 1

/**
 * Fail if the database does not exist.
 */
#define CABINET_OPEN_NO_CREATE 2

/**
 * Remove all records.
 */
#define CABINET_OPEN_TRUNCATE 4

/**
 * The value equals the operand. The numbers of the operators are Tokyo Cabinet's.
 */
#define CABINET_STRING_EQUAL 0

/**
 * The value contains the operand.
 */
#define CABINET_STRING_INCLUDES 1

/**
 * The value begins with the operand.
 */
#define CABINET_STRING_BEGINS 2

/**
 * The value ends with the operand.
 */
#define CABINET_STRING_ENDS 3

/**
 * All tokens of the operand are tokens of the value.
 */
#define CABINET_STRING_ALL_TOKENS 4

/**
 * One of the tokens of the operand is a token of the value.
 */
#define CABINET_STRING_ANY_TOKEN 5

/**
 * The value is one of the tokens of the operand.
 */
#define CABINET_STRING_EQUAL_ANY 6

/**
 * The value matches a POSIX extended regular expression; a leading `*` ignores case.
 */
#define CABINET_STRING_MATCHES 7

/**
 * The value equals this number.
 */
#define CABINET_NUMBER_EQUAL 8

/**
 * The value is a number greater than this.
 */
#define CABINET_NUMBER_GREATER 9

/**
 * The value is a number greater than or equal to this.
 */
#define CABINET_NUMBER_GREATER_EQUAL 10

/**
 * The value is a number less than this.
 */
#define CABINET_NUMBER_LESS 11

/**
 * The value is a number less than or equal to this.
 */
#define CABINET_NUMBER_LESS_EQUAL 12

/**
 * The value is a number from the lesser of two numbers to the greater, both included.
 */
#define CABINET_NUMBER_BETWEEN 13

/**
 * The value is one of these numbers.
 */
#define CABINET_NUMBER_EQUAL_ANY 14

/**
 * The text contains the phrase.
 */
#define CABINET_TEXT_PHRASE 15

/**
 * The text contains all tokens of the operand.
 */
#define CABINET_TEXT_ALL 16

/**
 * The text contains one of the tokens of the operand.
 */
#define CABINET_TEXT_ANY 17

/**
 * The text meets an expression with `&&`, `||` and `!!`.
 */
#define CABINET_TEXT_EXPRESSION 18

/**
 * The row must not meet the condition.
 */
#define CABINET_CONDITION_NEGATED 1

/**
 * The condition uses no index.
 */
#define CABINET_CONDITION_WITHOUT_INDEX 2

/**
 * By bytes, smallest first. The numbers of the orders are Tokyo Cabinet's.
 */
#define CABINET_SORT_STRING_ASCENDING 0

/**
 * By bytes, greatest first.
 */
#define CABINET_SORT_STRING_DESCENDING 1

/**
 * As numbers, smallest first.
 */
#define CABINET_SORT_NUMBER_ASCENDING 2

/**
 * As numbers, greatest first.
 */
#define CABINET_SORT_NUMBER_DESCENDING 3

/**
 * Results without their rows, which need not be read.
 */
#define CABINET_SEARCH_KEYS 1

/**
 * Remove each result. A row that has changed and no longer meets the conditions is kept. The
 * function gets removed rows, and cannot end the search.
 */
#define CABINET_SEARCH_REMOVE 2

/**
 * Store whatever record there is.
 */
#define CABINET_PUT_ALWAYS 0

/**
 * Store if the key has no record.
 */
#define CABINET_PUT_IF_ABSENT 1

/**
 * Store if the key has a record.
 */
#define CABINET_PUT_IF_PRESENT 2

/**
 * Leave the record as it is.
 */
#define CABINET_MODIFY_KEEP 0

/**
 * Store the replacement.
 */
#define CABINET_MODIFY_PUT 1

/**
 * Remove the record.
 */
#define CABINET_MODIFY_REMOVE 2

/**
 * Before the values that the key has.
 */
#define CABINET_BEFORE 0

/**
 * After the values that the key has.
 */
#define CABINET_AFTER 1

/**
 * Index by the bytes of the values.
 */
#define CABINET_INDEX_LEXICAL 0

/**
 * Index by the values as numbers.
 */
#define CABINET_INDEX_DECIMAL 1

/**
 * Index by each token of the values.
 */
#define CABINET_INDEX_TOKEN 2

/**
 * Index of full text, by every three characters.
 */
#define CABINET_INDEX_GRAM 3

/**
 * Build a new index even if the column has one of this kind.
 */
#define CABINET_INDEX_REBUILD 1

/**
 * The call did what it is for.
 */
#define CABINET_OK 0

/**
 * There is no such record, row, column or value; an iteration is at its end.
 */
#define CABINET_NOT_FOUND 1

/**
 * There is a record already, so nothing was stored.
 */
#define CABINET_EXISTS 2

/**
 * The record has another version, so nothing was stored.
 */
#define CABINET_CHANGED 3

/**
 * A callback ended the call by its result.
 */
#define CABINET_STOPPED 4

/**
 * The value is longer than the given buffer; its length was returned.
 */
#define CABINET_BUFFER_TOO_SMALL 5

/**
 * The operating system refused a file operation.
 */
#define CABINET_IO -1

/**
 * A file is damaged.
 */
#define CABINET_CORRUPTED -2

/**
 * The disk, or the cap of the database, is full. Reads still work.
 */
#define CABINET_NO_SPACE -3

/**
 * A database in memory uses all the memory that it may, or there is none for the copy that
 * `cabinet_get` returns. If memory runs out elsewhere, the process may end by `abort`.
 */
#define CABINET_NO_MEMORY -4

/**
 * An earlier write or sync failed, so all later ones are refused. Reads still work.
 */
#define CABINET_POISONED -5

/**
 * The database was opened for reading only.
 */
#define CABINET_READ_ONLY -6

/**
 * Changes are refused at present.
 */
#define CABINET_UNAVAILABLE -7

/**
 * A key, a value or a batch is over its limit.
 */
#define CABINET_TOO_LONG -8

/**
 * An argument, a name or its tuning is wrong: NULL, a length, a number that has no meaning.
 */
#define CABINET_INVALID -9

/**
 * The record does not hold a number of the right width, or the sum is not a number.
 */
#define CABINET_NOT_A_NUMBER -10

/**
 * Another writer has changed a record that the transaction or batch depends on. Nothing was
 * written.
 */
#define CABINET_CONFLICT -11

/**
 * The deadline has passed.
 */
#define CABINET_LATE -12

/**
 * The call would have to wait, on a handle that does not.
 */
#define CABINET_WOULD_BLOCK -13

/**
 * A callback called the database that had called it.
 */
#define CABINET_REENTRANT -14

/**
 * The database is open already, in this process or another one.
 */
#define CABINET_IN_USE -15

/**
 * The path has another kind of database, or a file of Tokyo Cabinet's.
 */
#define CABINET_WRONG_KIND -16

/**
 * There is an index on the column already, or none.
 */
#define CABINET_INDEX -17

/**
 * This kind of database, or this handle, does not have the operation.
 */
#define CABINET_UNSUPPORTED -18

/**
 * The database has the maximum number of something.
 */
#define CABINET_TOO_MANY -19

/**
 * A defect of this library. Nothing was changed.
 */
#define CABINET_INTERNAL -20

/**
 * The handle is closed.
 */
#define CABINET_CLOSED -21

/**
 * The database was opened before this process was forked off.
 */
#define CABINET_FORKED -22

/**
 * Changes that are written together or not at all, and versions that records must have first. One
 * thread uses it at a time.
 */
typedef struct cabinet_batch cabinet_batch;

/**
 * Cursor over the records of a tree, each duplicate by itself. It is at a record or, at first and
 * after it has passed an end, at none. It remembers a place, so that writes of others do not
 * invalidate it. A call that fails leaves it where it was. One thread uses it at a time.
 */
typedef struct cabinet_cursor cabinet_cursor;

/**
 * Handle of an open database, or of a transaction. All threads may use one handle at once.
 */
typedef struct cabinet_database cabinet_database;

/**
 * Error of a call. The caller owns it, and frees it by `cabinet_error_free`. It may be read by
 * any thread.
 */
typedef struct cabinet_error cabinet_error;

/**
 * Iterator over records. It locks nothing, so writes go on: a record that exists throughout is
 * returned once, other records at most once. A call that fails leaves it where it was. One thread
 * uses it at a time.
 */
typedef struct cabinet_iterator cabinet_iterator;

/**
 * Conditions of rows, the order of the results, and their number. One thread changes it at a
 * time; several may search by it.
 */
typedef struct cabinet_query cabinet_query;

/**
 * Outcome of a search: its plan and its cost. It does not change.
 */
typedef struct cabinet_query_report cabinet_query_report;

/**
 * A row of a table: values by the names of their columns. One thread changes it at a time.
 */
typedef struct cabinet_row cabinet_row;

/**
 * Result of a call: CABINET_OK or another result of 0 or more if the call did what it is for, one
 * of the negative numbers if it failed.
 */
typedef int32_t cabinet_status;

/**
 * How a record is stored. Set all members to 0, which is the default of each, and `size` to
 * `sizeof(cabinet_put_options)`. Later versions add members at the end.
 */
typedef struct {
  /**
   * Size of this structure, in bytes.
   */
  size_t size;
  /**
   * Milliseconds since the Unix epoch at which the record ceases to exist; 0 is never.
   */
  uint64_t expires_at_ms;
  /**
   * Flags without a meaning for the database.
   */
  uint32_t flags;
  /**
   * A CABINET_PUT.
   */
  int32_t condition;
} cabinet_put_options;

/**
 * A record that the library lends to the caller. The caller does not free it. Later versions add
 * members at the end, so it is not copied by its size.
 */
typedef struct {
  /**
   * The key. Not NULL, no NUL after it.
   */
  const char *key;
  /**
   * Bytes of the key.
   */
  size_t key_length;
  /**
   * The value, decompressed. Not NULL, no NUL after it.
   */
  const char *value;
  /**
   * Bytes of the value.
   */
  size_t value_length;
  /**
   * Number of its last change: unique within the database, never 0. 0 where a function says so.
   */
  uint64_t version;
  /**
   * Milliseconds since the Unix epoch at which it ceases to exist; 0 is never.
   */
  uint64_t expires_at_ms;
  /**
   * Flags without a meaning for the database.
   */
  uint32_t flags;
} cabinet_record;

/**
 * Records of an iteration. Set all members to 0, which is the default of each, and `size` to
 * `sizeof(cabinet_iterate_options)`. Later versions add members at the end.
 */
typedef struct {
  /**
   * Size of this structure, in bytes.
   */
  size_t size;
  /**
   * CABINET_ITERATE flags.
   */
  uint32_t flags;
  /**
   * Not used, 0.
   */
  uint32_t reserved;
  /**
   * Key at which the range begins, with its record; NULL for the first one. Kinds whose keys
   * are in order only.
   */
  const void *begin;
  /**
   * Bytes of `begin`.
   */
  size_t begin_length;
  /**
   * Key at which the range ends, without its record; NULL for the last one. Kinds whose keys
   * are in order only.
   */
  const void *end;
  /**
   * Bytes of `end`.
   */
  size_t end_length;
  /**
   * First bytes of all keys; NULL for any. Not together with `begin` or `end`. Reads all keys
   * unless they are in lexical order.
   */
  const void *prefix;
  /**
   * Bytes of `prefix`.
   */
  size_t prefix_length;
} cabinet_iterate_options;

/**
 * Function of the caller's that gets a record, which is valid until it returns, and the context
 * that the caller has given. It returns 0 to go on, or another number to end the call. It must
 * not call the database, unless the function that takes it allows that, and must not leave by
 * `longjmp` or an exception.
 */
typedef int32_t (*cabinet_visit)(void *context, const cabinet_record *record);

/**
 * Settings of `cabinet_open_path`. Set all members to 0, which is the default of each, and `size`
 * to `sizeof(cabinet_open_options)`; then those that differ. Later versions add members at the
 * end.
 */
typedef struct {
  /**
   * Size of this structure, in bytes.
   */
  size_t size;
  /**
   * A CABINET_KIND.
   */
  int32_t kind;
  /**
   * CABINET_OPEN flags.
   */
  uint32_t flags;
  /**
   * A CABINET_DURABILITY.
   */
  int32_t durability;
  /**
   * A CABINET_COMPRESSION, for new values.
   */
  int32_t compression;
  /**
   * Trees: a CABINET_ORDER, chosen when the database is created.
   */
  int32_t order;
  /**
   * Percent of dead bytes in the files above which compaction works, 10 to 90.
   */
  uint32_t dead_percent_max;
  /**
   * Milliseconds between syncs, with CABINET_DURABILITY_INTERVAL.
   */
  uint64_t durability_interval_ms;
  /**
   * Trees and tables: maximum bytes of pages in memory.
   */
  uint64_t cache_bytes;
  /**
   * Hash: maximum bytes of the index in memory.
   */
  uint64_t index_bytes;
  /**
   * In memory and trees: maximum number of records.
   */
  uint64_t capacity_records;
  /**
   * Maximum bytes, over which records that were not used lately are evicted.
   */
  uint64_t capacity_bytes;
  /**
   * In memory without a capacity: bytes over which writes are refused.
   */
  uint64_t memory_bytes;
  /**
   * Tables: about so many bytes that a query holds in memory.
   */
  uint64_t query_memory_bytes;
  /**
   * Bytes per second that compaction reads while there is no hurry.
   */
  uint64_t compaction_bytes_per_second;
  /**
   * Fixed-length, on creation: bytes of the longest value.
   */
  uint64_t width;
  /**
   * Fixed-length, on creation: bytes of Tokyo Cabinet's file, which limit the ids.
   */
  uint64_t limit_bytes;
} cabinet_open_options;

/**
 * Function of the caller's that gets a result of a search: the context, the primary key and the
 * row, which are valid until it returns. The row is NULL if only keys were asked for. It returns
 * 0 to go on, or another number to end the search. It may read and change rows of the table.
 */
typedef int32_t (*cabinet_visit_row)(void *context,
                                     const char *key,
                                     size_t key_length,
                                     const cabinet_row *row);

/**
 * Record that a function for `cabinet_modify` wants to be stored. The library has set the flags
 * and the expiry to those of the record, or to 0. Later versions add members at the end.
 */
typedef struct {
  /**
   * The new value, which is read after the function has returned, and is not freed.
   */
  const void *value;
  /**
   * Bytes of the value.
   */
  size_t value_length;
  /**
   * Milliseconds since the Unix epoch at which the record ceases to exist; 0 is never.
   */
  uint64_t expires_at_ms;
  /**
   * Flags without a meaning for the database.
   */
  uint32_t flags;
} cabinet_replacement;

/**
 * Function of the caller's that decides about a record: it gets the context, the record (NULL if
 * there is none) and a replacement, which it fills for CABINET_MODIFY_PUT. It returns a
 * CABINET_MODIFY. It must not call the database, and may be called again if another writer was
 * faster.
 */
typedef int32_t (*cabinet_decide)(void *context,
                                  const cabinet_record *record,
                                  cabinet_replacement *replacement);

/**
 * Function of the caller's that gets a statistic: the context, its name and its value, which end
 * with a NUL and are valid until it returns. It returns 0 to go on. It may call the database.
 */
typedef int32_t (*cabinet_visit_statistic)(void *context, const char *name, const char *value);

/**
 * Function of the caller's that gets a damaged place: the context, the path of the file, the byte
 * at which the damage begins, and what it is. The texts end with a NUL and are valid until it
 * returns.
 */
typedef void (*cabinet_visit_damage)(void *context,
                                     const char *file,
                                     uint64_t offset,
                                     const char *description);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates an empty batch, which `cabinet_batch_free` frees.
 */
cabinet_batch *cabinet_batch_create(void);

/**
 * Frees a batch. NULL is allowed.
 */
void cabinet_batch_free(cabinet_batch *batch);

/**
 * Removes all changes and conditions from a batch, so that it can be used again. NULL is allowed.
 */
void cabinet_batch_clear(cabinet_batch *batch);

/**
 * Returns the number of changes in a batch; 0 for NULL.
 */
size_t cabinet_batch_length(const cabinet_batch *batch);

/**
 * Adds a record to store. A later change of the same key wins. Lengths are checked by
 * `cabinet_write`.
 *
 * @param batch The batch.
 * @param key The key, `key_length` bytes, which is copied.
 * @param value The value, `value_length` bytes, which is copied.
 * @param options Flags and expiry; NULL for none. No condition.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_batch_put(cabinet_batch *batch,
                                 const void *key,
                                 size_t key_length,
                                 const void *value,
                                 size_t value_length,
                                 const cabinet_put_options *options,
                                 cabinet_error **error);

/**
 * Adds a record to remove, if it exists.
 *
 * @param batch The batch.
 * @param key The key, `key_length` bytes, which is copied.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_batch_remove(cabinet_batch *batch,
                                    const void *key,
                                    size_t key_length,
                                    cabinet_error **error);

/**
 * Adds a condition: the batch is written only if a record has this version.
 *
 * @param batch The batch.
 * @param key The key, `key_length` bytes, which is copied.
 * @param version The version; 0 if there must be no record.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_batch_expect(cabinet_batch *batch,
                                    const void *key,
                                    size_t key_length,
                                    uint64_t version,
                                    cabinet_error **error);

/**
 * Writes all changes of a batch, or none. The batch stays as it is.
 *
 * @param database The database, or a transaction.
 * @param batch The batch, which no thread changes meanwhile.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_CONFLICT if a condition does not hold; CABINET_TOO_LONG; or another
 *         error. After an error nothing was written.
 */
cabinet_status cabinet_write(cabinet_database *database,
                             const cabinet_batch *batch,
                             cabinet_error **error);

/**
 * Frees memory that a function of this library has returned as a buffer. NULL is allowed.
 */
void cabinet_free(void *buffer);

/**
 * Creates a cursor that is at no record yet.
 *
 * @param database A tree (`.tcb`).
 * @param cursor Set to the cursor, which `cabinet_cursor_free` frees.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_UNSUPPORTED; or an error.
 */
cabinet_status cabinet_cursor_create(cabinet_database *database,
                                     cabinet_cursor **cursor,
                                     cabinet_error **error);

/**
 * Frees a cursor, before or after its database is closed. NULL is allowed.
 */
void cabinet_cursor_free(cabinet_cursor *cursor);

/**
 * Moves to the first record.
 *
 * @param cursor The cursor.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND if it is at no record then; or an error.
 */
cabinet_status cabinet_cursor_first(cabinet_cursor *cursor, cabinet_error **error);

/**
 * Moves to the last record.
 *
 * @param cursor The cursor.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND if it is at no record then; or an error.
 */
cabinet_status cabinet_cursor_last(cabinet_cursor *cursor, cabinet_error **error);

/**
 * Moves to the next record.
 *
 * @param cursor The cursor.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND if it is at no record then; or an error.
 */
cabinet_status cabinet_cursor_next(cabinet_cursor *cursor, cabinet_error **error);

/**
 * Moves to the previous record.
 *
 * @param cursor The cursor.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND if it is at no record then; or an error.
 */
cabinet_status cabinet_cursor_previous(cabinet_cursor *cursor, cabinet_error **error);

/**
 * Moves to the first record whose key is at or after a key.
 *
 * @param cursor The cursor.
 * @param key The key, `key_length` bytes.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND if it is at no record then; or an error.
 */
cabinet_status cabinet_cursor_jump(cabinet_cursor *cursor,
                                   const void *key,
                                   size_t key_length,
                                   cabinet_error **error);

/**
 * Moves to the last record whose key is at or before a key.
 *
 * @param cursor The cursor.
 * @param key The key, `key_length` bytes.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND if it is at no record then; or an error.
 */
cabinet_status cabinet_cursor_jump_back(cabinet_cursor *cursor,
                                        const void *key,
                                        size_t key_length,
                                        cabinet_error **error);

/**
 * Lends the record at a cursor, as it was when the cursor moved there. Its version, flags and
 * expiry are 0: `cabinet_read_duplicate` has them.
 *
 * @param cursor The cursor.
 * @param record Set to the record, which is valid until the next call with the cursor, also if the
 *        database is closed meanwhile.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND if it is at no record; or an error.
 */
cabinet_status cabinet_cursor_record(cabinet_cursor *cursor,
                                     const cabinet_record **record,
                                     cabinet_error **error);

/**
 * Stores a value at a cursor.
 *
 * @param cursor The cursor.
 * @param value The value, `value_length` bytes.
 * @param place CABINET_CURRENT to replace the value; CABINET_BEFORE or CABINET_AFTER to insert a
 *        value of the same key, to which the cursor moves.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND if it is at no record, or that was removed; or an error.
 */
cabinet_status cabinet_cursor_put(cabinet_cursor *cursor,
                                  const void *value,
                                  size_t value_length,
                                  int32_t place,
                                  cabinet_error **error);

/**
 * Removes the record at a cursor, which moves to the one after it.
 *
 * @param cursor The cursor.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND if it was at no record; or an error.
 */
cabinet_status cabinet_cursor_remove(cabinet_cursor *cursor, cabinet_error **error);

/**
 * Returns the name of a status in English, such as "not found", for messages. It is never NULL
 * and is not freed.
 */
const char *cabinet_status_name(cabinet_status status);

/**
 * Returns the status that the call with this error has returned. 0 for NULL.
 */
cabinet_status cabinet_error_code(const cabinet_error *error);

/**
 * Returns what failed, in English, with the names and values that it is about. The text ends with
 * a NUL and belongs to the error. It is never NULL, and empty for NULL.
 */
const char *cabinet_error_text(const cabinet_error *error);

/**
 * Returns what to do about an error, in English; empty if there is no advice. The text ends with
 * a NUL and belongs to the error. It is never NULL, and empty for NULL.
 */
const char *cabinet_error_advice(const cabinet_error *error);

/**
 * Frees an error. NULL is allowed.
 */
void cabinet_error_free(cabinet_error *error);

/**
 * Returns the version of the library, such as "0.1.0". It is not freed.
 */
const char *cabinet_version(void);

/**
 * Closes a database after the calls of other threads on it have ended, and with it its
 * transactions, further handles, cursors and iterators. All of them must still be freed. Later
 * calls on them fail with CABINET_CLOSED, so other threads may still try some. The handle of a
 * transaction discards its changes. A handle that is closed already is left as it is.
 *
 * If another thread is closing the handle, or commits or closes one of its transactions, returns
 * after that. `cabinet_sync` before it shows whether the last writes are on the disk.
 *
 * @param database The handle. It is not freed.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_REENTRANT in a callback of this database; CABINET_FORKED in a child
 *         of the process that has opened it.
 */
cabinet_status cabinet_close(cabinet_database *database, cabinet_error **error);

/**
 * Frees a handle, and closes it if it is open. No thread may use it any more. NULL is allowed.
 *
 * Never free a handle in a callback of the same database: it stays open until the process ends,
 * so that every later opening is CABINET_IN_USE, and its memory is not given back. In a forked
 * child of the process that has opened it the memory is not given back either, and the database
 * of the parent is left alone.
 */
void cabinet_database_free(cabinet_database *database);

/**
 * Makes another handle of the same database, whose calls behave differently. It is closed with
 * the first one, or before it.
 *
 * @param database A handle that is not of a transaction.
 * @param flags CABINET_DEFERRED, CABINET_NONBLOCKING, both (by |), or 0.
 * @param handle Set to the new handle, which is freed by `cabinet_database_free`.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_handle(cabinet_database *database,
                              uint32_t flags,
                              cabinet_database **handle,
                              cabinet_error **error);

/**
 * Begins a transaction: a handle on which all functions of records work, and see its changes.
 * They become visible to others all at once by `cabinet_transaction_commit`. It takes no locks:
 * if another writer has changed a record that the transaction has read, the commit fails.
 * Iterations in it see the database without its changes. Columns of rows, tables and cursors are
 * not for transactions.
 *
 * @param database The database. A transaction of a transaction is allowed.
 * @param transaction Set to the handle, which is freed by `cabinet_database_free`. Closing or
 *        freeing it discards the changes.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_transaction_begin(cabinet_database *database,
                                         cabinet_database **transaction,
                                         cabinet_error **error);

/**
 * Writes the changes of a transaction, all or none, and closes its handle, which must still be
 * freed, also after an error.
 *
 * @param transaction Handle of `cabinet_transaction_begin`.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_CONFLICT if another writer has changed a record that was read, and
 *         nothing was written: begin again; CABINET_UNSUPPORTED if the handle is not of a
 *         transaction, which stays open; or another error.
 */
cabinet_status cabinet_transaction_commit(cabinet_database *transaction, cabinet_error **error);

/**
 * Creates an iterator over all records, those of a range, or those whose keys have a prefix.
 * Kinds in order (trees, tables, `+`, fixed-length) return them in the order of keys, others in
 * an order of their own, for which `cabinet_for_each` is faster.
 *
 * @param database The database. A transaction's own changes are not seen.
 * @param options The range, the prefix and the direction; NULL for all records.
 * @param iterator Set to the iterator, which `cabinet_iterator_free` frees.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_UNSUPPORTED for a range without an order, or backwards in another
 *         kind than a tree; CABINET_INVALID; or another error.
 */
cabinet_status cabinet_iterate(cabinet_database *database,
                               const cabinet_iterate_options *options,
                               cabinet_iterator **iterator,
                               cabinet_error **error);

/**
 * Moves an iterator to the next record, and lends it.
 *
 * @param iterator The iterator.
 * @param record Set to the record, which is valid until the next call with the iterator, also if
 *        the database is closed meanwhile. Backwards, and with CABINET_ITERATE_KEYS, its version,
 *        flags and expiry are 0.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND at the end; or an error.
 */
cabinet_status cabinet_iterator_next(cabinet_iterator *iterator,
                                     const cabinet_record **record,
                                     cabinet_error **error);

/**
 * Frees an iterator, before or after its database is closed. NULL is allowed.
 */
void cabinet_iterator_free(cabinet_iterator *iterator);

/**
 * Lends each record to a function, in the fastest order for the kind of database. In a tree that
 * is the order of keys. Writers are not delayed.
 *
 * @param database The database. A transaction's own changes are not seen.
 * @param visit Called with each record, until it returns another number than 0.
 * @param context Handed to `visit`.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_STOPPED; or an error.
 */
cabinet_status cabinet_for_each(cabinet_database *database,
                                cabinet_visit visit,
                                void *context,
                                cabinet_error **error);

/**
 * Lends each record whose key matches a pattern to a function. Reads all records.
 *
 * @param database The database. A transaction's own changes are not seen.
 * @param pattern A POSIX extended regular expression, `pattern_length` bytes. A leading `*`
 *        ignores case.
 * @param visit Called with each record, until it returns another number than 0.
 * @param context Handed to `visit`.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_STOPPED; CABINET_INVALID for a wrong pattern; or an error.
 */
cabinet_status cabinet_for_each_match(cabinet_database *database,
                                      const void *pattern,
                                      size_t pattern_length,
                                      cabinet_visit visit,
                                      void *context,
                                      cabinet_error **error);

/**
 * Opens the database with a name, and creates it if it does not exist. The name has its path, its
 * kind and its settings: "casket.tch", "prices.tcb#durability=always#cache=64m", "*" for a hash
 * in memory, "+" for an ordered map in memory. docs/databases.md lists the settings. A database
 * on disk is a folder, and is open once at a time, or several times for reading (mode=r).
 *
 * @param name The name: UTF-8 that ends with a NUL.
 * @param database Set to the handle, which is freed by `cabinet_database_free`. Left as it is
 *        after an error.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_IN_USE if it is open already; CABINET_WRONG_KIND; CABINET_INVALID
 *         for a wrong name; CABINET_CORRUPTED; CABINET_IO; or another error.
 */
cabinet_status cabinet_open(const char *name, cabinet_database **database, cabinet_error **error);

/**
 * Opens the database at a path with options. The path has no settings, and may be in any
 * encoding.
 *
 * @param path The path, which ends with a NUL.
 * @param options The settings; NULL for the defaults.
 * @param database Set to the handle, which is freed by `cabinet_database_free`.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return Like `cabinet_open`.
 */
cabinet_status cabinet_open_path(const char *path,
                                 const cabinet_open_options *options,
                                 cabinet_database **database,
                                 cabinet_error **error);

/**
 * Creates a query for all rows, which `cabinet_query_free` frees.
 */
cabinet_query *cabinet_query_create(void);

/**
 * Frees a query. NULL is allowed.
 */
void cabinet_query_free(cabinet_query *query);

/**
 * Adds a condition, which all results meet.
 *
 * @param query The query.
 * @param column Name of the column, `column_length` bytes; none for the primary key.
 * @param condition An operator of the header: CABINET_STRING, CABINET_NUMBER or CABINET_TEXT.
 * @param operand The operand, `operand_length` bytes. A number is text.
 * @param flags CABINET_CONDITION_NEGATED, CABINET_CONDITION_WITHOUT_INDEX, both, or 0.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_INVALID, also for an operand that is no number or no pattern where
 *         the operator takes one.
 */
cabinet_status cabinet_query_add(cabinet_query *query,
                                 const void *column,
                                 size_t column_length,
                                 int32_t condition,
                                 const void *operand,
                                 size_t operand_length,
                                 uint32_t flags,
                                 cabinet_error **error);

/**
 * Sets the order of the results. Rows without the column come last.
 *
 * @param query The query.
 * @param column Name of the column, `column_length` bytes; none for the primary key.
 * @param order A CABINET_SORT.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or CABINET_INVALID.
 */
cabinet_status cabinet_query_order(cabinet_query *query,
                                   const void *column,
                                   size_t column_length,
                                   int32_t order,
                                   cabinet_error **error);

/**
 * Sets the number of results.
 *
 * @param query The query.
 * @param max Maximum number of results; UINT64_MAX for all.
 * @param skip Number of first results that are left out.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or CABINET_INVALID.
 */
cabinet_status cabinet_query_limit(cabinet_query *query,
                                   uint64_t max,
                                   uint64_t skip,
                                   cabinet_error **error);

/**
 * Calls a function with the results of a query, in its order.
 *
 * @param database A table (`.tct`).
 * @param query The query, which no thread changes meanwhile.
 * @param flags CABINET_SEARCH_KEYS or CABINET_SEARCH_REMOVE, or 0.
 * @param visit Called with each result; NULL to count them, or to remove them, only.
 * @param context Handed to `visit`.
 * @param report Set to a report, which `cabinet_query_report_free` frees; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_STOPPED; CABINET_UNSUPPORTED; or an error.
 */
cabinet_status cabinet_search(cabinet_database *database,
                              const cabinet_query *query,
                              uint32_t flags,
                              cabinet_visit_row visit,
                              void *context,
                              cabinet_query_report **report,
                              cabinet_error **error);

/**
 * Returns the number of results of a query.
 *
 * @param database A table.
 * @param query The query, which no thread changes meanwhile.
 * @param count Set to the number.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_UNSUPPORTED; or an error.
 */
cabinet_status cabinet_search_count(cabinet_database *database,
                                    const cabinet_query *query,
                                    uint64_t *count,
                                    cabinet_error **error);

/**
 * Frees a report. NULL is allowed.
 */
void cabinet_query_report_free(cabinet_query_report *report);

/**
 * Returns the steps of the search, one line each: which index was used, and how rows were sorted.
 * The text ends with a NUL and belongs to the report. Empty for NULL.
 */
const char *cabinet_query_report_plan(const cabinet_query_report *report);

/**
 * Returns the number of results, or of removed rows; 0 for NULL.
 */
uint64_t cabinet_query_report_count(const cabinet_query_report *report);

/**
 * Returns the number of rows that were read for tests or sorting; 0 for NULL.
 */
uint64_t cabinet_query_report_rows_read(const cabinet_query_report *report);

/**
 * Returns the number of entries of indices that led to a row; 0 for NULL.
 */
uint64_t cabinet_query_report_entries_read(const cabinet_query_report *report);

/**
 * Returns a copy of the value of a key.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes.
 * @param value Set to the value with a NUL after it, which `cabinet_free` frees; to NULL unless
 *        the result is CABINET_OK.
 * @param value_length Set to the bytes of the value, without the NUL; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND; or an error.
 */
cabinet_status cabinet_get(cabinet_database *database,
                           const void *key,
                           size_t key_length,
                           char **value,
                           size_t *value_length,
                           cabinet_error **error);

/**
 * Copies the value of a key into a buffer of the caller's.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes.
 * @param buffer The buffer, `capacity` bytes. No NUL is added.
 * @param value_length Set to the bytes of the value, also if the buffer is too small.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND; CABINET_BUFFER_TOO_SMALL, and nothing was copied; or an
 *         error.
 */
cabinet_status cabinet_get_into(cabinet_database *database,
                                const void *key,
                                size_t key_length,
                                void *buffer,
                                size_t capacity,
                                size_t *value_length,
                                cabinet_error **error);

/**
 * Lends the record of a key to a function, without a copy of a value that is stored as it is.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes.
 * @param visit Called with the record. Its result is not used.
 * @param context Handed to `visit`.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND, and `visit` was not called; or an error.
 */
cabinet_status cabinet_read(cabinet_database *database,
                            const void *key,
                            size_t key_length,
                            cabinet_visit visit,
                            void *context,
                            cabinet_error **error);

/**
 * Returns the length of the value of a key.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes.
 * @param value_length Set to the bytes of the value.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND; or an error.
 */
cabinet_status cabinet_value_size(cabinet_database *database,
                                  const void *key,
                                  size_t key_length,
                                  size_t *value_length,
                                  cabinet_error **error);

/**
 * Stores a record, and replaces the one that the key has.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes, at most 65,536.
 * @param value The value, `value_length` bytes, at most 1 GiB. In a table: names and values of
 *        columns in turn, joined by NUL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_put(cabinet_database *database,
                           const void *key,
                           size_t key_length,
                           const void *value,
                           size_t value_length,
                           cabinet_error **error);

/**
 * Stores a record with flags, an expiry and a condition.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes, at most 65,536.
 * @param value The value, `value_length` bytes, at most 1 GiB.
 * @param options Flags, expiry and condition; NULL for none.
 * @param version Set to the version of the new record; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_EXISTS with CABINET_PUT_IF_ABSENT; CABINET_NOT_FOUND with
 *         CABINET_PUT_IF_PRESENT; or an error.
 */
cabinet_status cabinet_put_with(cabinet_database *database,
                                const void *key,
                                size_t key_length,
                                const void *value,
                                size_t value_length,
                                const cabinet_put_options *options,
                                uint64_t *version,
                                cabinet_error **error);

/**
 * Stores a record if the key has none: `cabinet_put_with` with CABINET_PUT_IF_ABSENT.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes.
 * @param value The value, `value_length` bytes.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_EXISTS, and nothing was stored; or an error.
 */
cabinet_status cabinet_add(cabinet_database *database,
                           const void *key,
                           size_t key_length,
                           const void *value,
                           size_t value_length,
                           cabinet_error **error);

/**
 * Appends to the value of a key, which keeps its flags and expiry. Stores a record if there is
 * none. In a table, adds the columns that the row lacks.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes.
 * @param suffix The bytes to append, `suffix_length`.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_append(cabinet_database *database,
                              const void *key,
                              size_t key_length,
                              const void *suffix,
                              size_t suffix_length,
                              cabinet_error **error);

/**
 * Removes a record, or a row. In a tree, the first of the key's values.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND; or an error.
 */
cabinet_status cabinet_remove(cabinet_database *database,
                              const void *key,
                              size_t key_length,
                              cabinet_error **error);

/**
 * Adds to a little-endian 32-bit integer, which wraps. Stores the addend if there is no record.
 * In a table, adds to the column `_num`, as text.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes.
 * @param addend The number to add.
 * @param sum Set to the sum; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_A_NUMBER if the value is not of 4 bytes; or an error.
 */
cabinet_status cabinet_add_int(cabinet_database *database,
                               const void *key,
                               size_t key_length,
                               int32_t addend,
                               int32_t *sum,
                               cabinet_error **error);

/**
 * Adds to a little-endian IEEE 754 double. Stores the addend if there is no record. In a table,
 * adds to the column `_num`, as text.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes.
 * @param addend The number to add.
 * @param sum Set to the sum; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_A_NUMBER if the value is not of 8 bytes, or the sum would not be
 *         a number; or an error.
 */
cabinet_status cabinet_add_double(cabinet_database *database,
                                  const void *key,
                                  size_t key_length,
                                  double addend,
                                  double *sum,
                                  cabinet_error **error);

/**
 * Stores a record if the one that the key has is of a version, which a read has returned.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes.
 * @param version The version that the record must have.
 * @param value The new value, `value_length` bytes.
 * @param options Flags and expiry of the new record; NULL for none. No condition.
 * @param stored_version Set to the version of the new record; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_CHANGED if the record has another version; CABINET_NOT_FOUND; or an
 *         error.
 */
cabinet_status cabinet_compare_and_swap(cabinet_database *database,
                                        const void *key,
                                        size_t key_length,
                                        uint64_t version,
                                        const void *value,
                                        size_t value_length,
                                        const cabinet_put_options *options,
                                        uint64_t *stored_version,
                                        cabinet_error **error);

/**
 * Sets the expiry of a record.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes.
 * @param expires_at_ms Milliseconds since the Unix epoch at which it ceases to exist; 0 is never.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND; or an error.
 */
cabinet_status cabinet_touch(cabinet_database *database,
                             const void *key,
                             size_t key_length,
                             uint64_t expires_at_ms,
                             cabinet_error **error);

/**
 * Changes a record atomically: no other change of the key comes between the reading and the
 * writing.
 *
 * @param database The database, or a transaction.
 * @param key The key, `key_length` bytes.
 * @param decide Called with the record.
 * @param context Handed to `decide`.
 * @param version Set to the version of the stored record, 0 if none was stored; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_modify(cabinet_database *database,
                              const void *key,
                              size_t key_length,
                              cabinet_decide decide,
                              void *context,
                              uint64_t *version,
                              cabinet_error **error);

/**
 * Stores one more value of a key. Trees (`.tcb`) only.
 *
 * @param database A tree.
 * @param key The key, `key_length` bytes.
 * @param value The value, `value_length` bytes.
 * @param side CABINET_BEFORE or CABINET_AFTER.
 * @param options Flags and expiry of this value; NULL for none. No condition.
 * @param version Set to the version of the new value; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_UNSUPPORTED; or an error.
 */
cabinet_status cabinet_put_duplicate(cabinet_database *database,
                                     const void *key,
                                     size_t key_length,
                                     const void *value,
                                     size_t value_length,
                                     int32_t side,
                                     const cabinet_put_options *options,
                                     uint64_t *version,
                                     cabinet_error **error);

/**
 * Lends one of the values of a key to a function. Trees only.
 *
 * @param database A tree.
 * @param key The key, `key_length` bytes.
 * @param index Number of the value, from 0.
 * @param visit Called with the record. Its result is not used.
 * @param context Handed to `visit`.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND if the key has fewer values; CABINET_UNSUPPORTED; or an
 *         error.
 */
cabinet_status cabinet_read_duplicate(cabinet_database *database,
                                      const void *key,
                                      size_t key_length,
                                      size_t index,
                                      cabinet_visit visit,
                                      void *context,
                                      cabinet_error **error);

/**
 * Returns copies of all values of a key to a function, in order, with version 0. Trees only. The
 * function may call the database.
 *
 * @param database A tree.
 * @param key The key, `key_length` bytes.
 * @param visit Called with each value, until it returns another number than 0.
 * @param context Handed to `visit`.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, also for no value; CABINET_STOPPED; CABINET_UNSUPPORTED; or an error.
 */
cabinet_status cabinet_for_each_duplicate(cabinet_database *database,
                                          const void *key,
                                          size_t key_length,
                                          cabinet_visit visit,
                                          void *context,
                                          cabinet_error **error);

/**
 * Returns the number of values that a key has. Trees only.
 *
 * @param database A tree.
 * @param key The key, `key_length` bytes.
 * @param count Set to the number.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, also for 0; CABINET_UNSUPPORTED; or an error.
 */
cabinet_status cabinet_count_duplicates(cabinet_database *database,
                                        const void *key,
                                        size_t key_length,
                                        size_t *count,
                                        cabinet_error **error);

/**
 * Removes all values of a key. Trees only.
 *
 * @param database A tree.
 * @param key The key, `key_length` bytes.
 * @param removed Set to their number; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, also for none; CABINET_UNSUPPORTED; or an error.
 */
cabinet_status cabinet_remove_duplicates(cabinet_database *database,
                                         const void *key,
                                         size_t key_length,
                                         size_t *removed,
                                         cabinet_error **error);

/**
 * Creates a row without columns, which `cabinet_row_free` frees.
 */
cabinet_row *cabinet_row_create(void);

/**
 * Frees a row. NULL is allowed.
 */
void cabinet_row_free(cabinet_row *row);

/**
 * Sets the value of a column.
 *
 * @param row The row.
 * @param name Name of the column, `name_length` bytes, 1 to 32,768.
 * @param value The value, `value_length` bytes.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_INVALID for a wrong name.
 */
cabinet_status cabinet_row_set(cabinet_row *row,
                               const void *name,
                               size_t name_length,
                               const void *value,
                               size_t value_length,
                               cabinet_error **error);

/**
 * Removes a column.
 *
 * @param row The row.
 * @param name Name of the column, `name_length` bytes.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND; or CABINET_INVALID.
 */
cabinet_status cabinet_row_remove(cabinet_row *row,
                                  const void *name,
                                  size_t name_length,
                                  cabinet_error **error);

/**
 * Lends the value of a column.
 *
 * @param row The row.
 * @param name Name of the column, `name_length` bytes.
 * @param value Set to the value, which is valid until the row is changed or freed. No NUL is after
 *        it.
 * @param value_length Set to the bytes of the value.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND; or CABINET_INVALID.
 */
cabinet_status cabinet_row_get(const cabinet_row *row,
                               const void *name,
                               size_t name_length,
                               const char **value,
                               size_t *value_length,
                               cabinet_error **error);

/**
 * Returns the number of columns of a row; 0 for NULL.
 */
size_t cabinet_row_length(const cabinet_row *row);

/**
 * Lends a column of a row by its number, in the order in which the columns were added.
 *
 * @param row The row.
 * @param index Number of the column, from 0.
 * @param name Set to its name, which is valid until the row is changed or freed.
 * @param name_length Set to the bytes of the name.
 * @param value Set to its value, which is valid as long.
 * @param value_length Set to the bytes of the value.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND if the row has fewer columns; or CABINET_INVALID.
 */
cabinet_status cabinet_row_column(const cabinet_row *row,
                                  size_t index,
                                  const char **name,
                                  size_t *name_length,
                                  const char **value,
                                  size_t *value_length,
                                  cabinet_error **error);

/**
 * Stores a row, and replaces the one that the primary key has.
 *
 * @param database A table (`.tct`).
 * @param key The primary key, `key_length` bytes, at most 32,768.
 * @param row The row, which no thread changes meanwhile.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_UNSUPPORTED; or an error.
 */
cabinet_status cabinet_row_put(cabinet_database *database,
                               const void *key,
                               size_t key_length,
                               const cabinet_row *row,
                               cabinet_error **error);

/**
 * Stores a row if the primary key has none.
 *
 * @param database A table.
 * @param key The primary key, `key_length` bytes.
 * @param row The row, which no thread changes meanwhile.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_EXISTS, and nothing was stored; CABINET_UNSUPPORTED; or an error.
 */
cabinet_status cabinet_row_add(cabinet_database *database,
                               const void *key,
                               size_t key_length,
                               const cabinet_row *row,
                               cabinet_error **error);

/**
 * Returns a copy of the row under a primary key. `cabinet_remove` removes it.
 *
 * @param database A table.
 * @param key The primary key, `key_length` bytes.
 * @param row Set to the row, which `cabinet_row_free` frees; to NULL unless the result is
 *        CABINET_OK.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_NOT_FOUND; CABINET_UNSUPPORTED; or an error.
 */
cabinet_status cabinet_row_read(cabinet_database *database,
                                const void *key,
                                size_t key_length,
                                cabinet_row **row,
                                cabinet_error **error);

/**
 * Returns a new identifier for a primary key: 1 in a new table, and later always a greater one,
 * also after a crash.
 *
 * @param database A table.
 * @param identifier Set to the identifier.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_UNSUPPORTED; or an error.
 */
cabinet_status cabinet_generate_id(cabinet_database *database,
                                   uint64_t *identifier,
                                   cabinet_error **error);

/**
 * Builds the index of a column, in place of one of another kind. Other threads may write and
 * search meanwhile.
 *
 * @param database A table.
 * @param column Name of the column, `column_length` bytes; none for the primary key.
 * @param kind A CABINET_INDEX.
 * @param flags CABINET_INDEX_REBUILD, or 0: an index of the same kind is kept.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_UNSUPPORTED; CABINET_REENTRANT in a callback; or an error.
 */
cabinet_status cabinet_index_set(cabinet_database *database,
                                 const void *column,
                                 size_t column_length,
                                 int32_t kind,
                                 uint32_t flags,
                                 cabinet_error **error);

/**
 * Removes the index of a column.
 *
 * @param database A table.
 * @param column Name of the column, `column_length` bytes; none for the primary key.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_INDEX if there is none; CABINET_UNSUPPORTED; CABINET_REENTRANT in a
 *         callback; or an error.
 */
cabinet_status cabinet_index_remove(cabinet_database *database,
                                    const void *column,
                                    size_t column_length,
                                    cabinet_error **error);

/**
 * Returns the number of records. Expired ones count until they are removed.
 *
 * @param database The database.
 * @param count Set to the number.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_count(cabinet_database *database, uint64_t *count, cabinet_error **error);

/**
 * Returns the size of a database: on the disk, or in memory for one in memory.
 *
 * @param database The database.
 * @param size_bytes Set to the size, in bytes.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_size_bytes(cabinet_database *database,
                                  uint64_t *size_bytes,
                                  cabinet_error **error);

/**
 * Returns the kind of a database.
 *
 * @param database The database.
 * @param kind Set to a CABINET_KIND.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_kind(cabinet_database *database, int32_t *kind, cabinet_error **error);

/**
 * Returns a copy of the path of a database; "*" or "+" for one in memory.
 *
 * @param database The database.
 * @param path Set to the path with a NUL after it, which `cabinet_free` frees; to NULL after an
 *        error.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_path(cabinet_database *database, char **path, cabinet_error **error);

/**
 * Calls a function with each statistic of a database. Names may be added in later versions.
 *
 * @param database The database.
 * @param visit Called with each, until it returns another number than 0.
 * @param context Handed to `visit`.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_STOPPED; or an error.
 */
cabinet_status cabinet_stats(cabinet_database *database,
                             cabinet_visit_statistic visit,
                             void *context,
                             cabinet_error **error);

/**
 * Removes all records. Indices of a table are kept.
 *
 * @param database The database.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_clear(cabinet_database *database, cabinet_error **error);

/**
 * Makes everything that was written durable.
 *
 * @param database The database.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_sync(cabinet_database *database, cabinet_error **error);

/**
 * Returns the durability with which a database was opened.
 *
 * @param database The database.
 * @param durability Set to a CABINET_DURABILITY.
 * @param interval_ms Set to the milliseconds of the interval, 0 without one; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_durability(cabinet_database *database,
                                  int32_t *durability,
                                  uint64_t *interval_ms,
                                  cabinet_error **error);

/**
 * Returns positions in the log of a database, in bytes since it was opened; 0 for one in memory.
 *
 * @param database The database.
 * @param appended Set to the position after every write that has returned; may be NULL.
 * @param durable Set to the position before which everything is durable; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_log_position(cabinet_database *database,
                                    uint64_t *appended,
                                    uint64_t *durable,
                                    cabinet_error **error);

/**
 * Waits until a position of the log is durable.
 *
 * @param database The database.
 * @param position A position that `cabinet_log_position` has returned after a write.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_INVALID for a position that is not reached yet; CABINET_POISONED or
 *         CABINET_IO if a sync fails; or another error.
 */
cabinet_status cabinet_wait_durable(cabinet_database *database,
                                    uint64_t position,
                                    cabinet_error **error);

/**
 * Gives back all dead space, and returns when that is done. Readers and writers go on.
 *
 * @param database The database.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_optimize(cabinet_database *database, cabinet_error **error);

/**
 * Writes a consistent copy, while others write. It is opened like the database; that of a
 * database in memory as a hash (`.tch`) or a tree (`.tcb`).
 *
 * @param database The database, not a transaction.
 * @param path Path of the copy, which must not exist; it ends with a NUL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK; CABINET_UNSUPPORTED; CABINET_IO; or another error.
 */
cabinet_status cabinet_backup(cabinet_database *database, const char *path, cabinet_error **error);

/**
 * Verifies every checksum of a database that no process has open. Changes nothing.
 *
 * @param path Path of the database, which ends with a NUL.
 * @param visit Called with each damaged place; NULL to count them only.
 * @param context Handed to `visit`.
 * @param damages Set to the number of damaged places; may be NULL.
 * @param records Set to the number of records that were read, dead ones included; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK if all files could be read, however damaged they are; or an error.
 */
cabinet_status cabinet_check(const char *path,
                             cabinet_visit_damage visit,
                             void *context,
                             uint64_t *damages,
                             uint64_t *records,
                             cabinet_error **error);

/**
 * Verifies every checksum of a database while it is in use, which delays no other call.
 *
 * @param database The database. One in memory has no checksums.
 * @param bytes_per_second Maximum bytes to read per second; 0 for no limit.
 * @param visit Called with each damaged place; NULL to count them only. It must not call the
 *        database.
 * @param context Handed to `visit`.
 * @param damages Set to the number of damaged places; may be NULL.
 * @param records Set to the number of records that were read, dead ones included; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK if all files could be read, however damaged they are; or an error.
 */
cabinet_status cabinet_verify(cabinet_database *database,
                              uint64_t bytes_per_second,
                              cabinet_visit_damage visit,
                              void *context,
                              uint64_t *damages,
                              uint64_t *records,
                              cabinet_error **error);

/**
 * Copies all records of a damaged database that can be read, which no process has open, into
 * another database. Writes nothing to the damaged one.
 *
 * @param path Path of the damaged database, which ends with a NUL.
 * @param into An open database; for a table, a table.
 * @param visit Called with each damaged place; may be NULL. It must not call the database.
 * @param context Handed to `visit`.
 * @param copied Set to the number of changes, records or rows that were copied; may be NULL.
 * @param error Set to an error of the caller's, or to NULL; may be NULL.
 * @return CABINET_OK, or an error.
 */
cabinet_status cabinet_salvage(const char *path,
                               cabinet_database *into,
                               cabinet_visit_damage visit,
                               void *context,
                               uint64_t *copied,
                               cabinet_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CABINET_H */
