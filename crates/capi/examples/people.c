/* A table with an index, and a query with its plan.
 *
 *     cc people.c $(pkg-config --cflags --libs cabinet) && ./a.out FOLDER
 */

#include <cabinet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the text and the advice of an error. It gets the place of the error, which
 * is read after the call: C may evaluate the arguments of check in any order. */
static void check(cabinet_status status, cabinet_error **error) {
    if (status < 0) {
        fprintf(stderr, "%s; %s\n", cabinet_error_text(*error), cabinet_error_advice(*error));
        cabinet_error_free(*error);
        exit(1);
    }
}

static void add(cabinet_database *table, const char *key, const char *name, const char *age) {
    cabinet_error *error = NULL;
    cabinet_row *row = cabinet_row_create();
    check(cabinet_row_set(row, "name", 4, name, strlen(name), &error), &error);
    check(cabinet_row_set(row, "age", 3, age, strlen(age), &error), &error);
    check(cabinet_row_put(table, key, strlen(key), row, &error), &error);
    cabinet_row_free(row);
}

static int print(void *context, const char *key, size_t key_length, const cabinet_row *row) {
    const char *name;
    size_t length;
    (void)context;
    if (cabinet_row_get(row, "name", 4, &name, &length, NULL) == CABINET_OK) {
        printf("%.*s: %.*s\n", (int)key_length, key, (int)length, name);
    }
    return 0;
}

int main(int count, char **arguments) {
    cabinet_error *error = NULL;
    cabinet_database *table;
    char name[4096];
    snprintf(name, sizeof name, "%s/people.tct", count > 1 ? arguments[1] : ".");
    check(cabinet_open(name, &table, &error), &error);
    check(cabinet_index_set(table, "age", 3, CABINET_INDEX_DECIMAL, 0, &error), &error);
    add(table, "p1", "Ann", "34");
    add(table, "p2", "Bob", "9");
    add(table, "p3", "Cid", "52");

    cabinet_query *query = cabinet_query_create();
    cabinet_query_report *report;
    check(cabinet_query_add(query, "age", 3, CABINET_NUMBER_GREATER_EQUAL, "18", 2, 0, &error),
          &error);
    check(cabinet_query_order(query, "age", 3, CABINET_SORT_NUMBER_DESCENDING, &error), &error);
    check(cabinet_search(table, query, 0, print, NULL, &report, &error), &error);
    printf("%s", cabinet_query_report_plan(report));
    cabinet_query_report_free(report);
    cabinet_query_free(query);
    cabinet_database_free(table);
    return 0;
}
