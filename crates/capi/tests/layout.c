/* Prints the layout of each structure of the header, for the dump of the binary interface. */

#include "cabinet.h"

#include <stdio.h>

#define AT(type, member) printf("struct %s: %s at %zu\n", #type, #member, offsetof(type, member))

int main(void) {
    AT(cabinet_record, key);
    AT(cabinet_record, key_length);
    AT(cabinet_record, value);
    AT(cabinet_record, value_length);
    AT(cabinet_record, version);
    AT(cabinet_record, expires_at_ms);
    AT(cabinet_record, flags);
    AT(cabinet_replacement, value);
    AT(cabinet_replacement, value_length);
    AT(cabinet_replacement, expires_at_ms);
    AT(cabinet_replacement, flags);
    AT(cabinet_put_options, size);
    AT(cabinet_put_options, expires_at_ms);
    AT(cabinet_put_options, flags);
    AT(cabinet_put_options, condition);
    AT(cabinet_iterate_options, size);
    AT(cabinet_iterate_options, flags);
    AT(cabinet_iterate_options, reserved);
    AT(cabinet_iterate_options, begin);
    AT(cabinet_iterate_options, begin_length);
    AT(cabinet_iterate_options, end);
    AT(cabinet_iterate_options, end_length);
    AT(cabinet_iterate_options, prefix);
    AT(cabinet_iterate_options, prefix_length);
    AT(cabinet_open_options, size);
    AT(cabinet_open_options, kind);
    AT(cabinet_open_options, flags);
    AT(cabinet_open_options, durability);
    AT(cabinet_open_options, compression);
    AT(cabinet_open_options, order);
    AT(cabinet_open_options, dead_percent_max);
    AT(cabinet_open_options, durability_interval_ms);
    AT(cabinet_open_options, cache_bytes);
    AT(cabinet_open_options, index_bytes);
    AT(cabinet_open_options, capacity_records);
    AT(cabinet_open_options, capacity_bytes);
    AT(cabinet_open_options, memory_bytes);
    AT(cabinet_open_options, query_memory_bytes);
    AT(cabinet_open_options, compaction_bytes_per_second);
    AT(cabinet_open_options, width);
    AT(cabinet_open_options, limit_bytes);
    return 0;
}
