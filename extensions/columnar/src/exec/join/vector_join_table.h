/*
 * vector_join_table.h
 *		From the values of a join's keys to the numbers of the rows that have them.
 *
 * Equality is that of vector_groups.h, but NULL equals nothing.  The keys that are looked
 * up may be of another type than those added, if equal values have equal words: integers
 * of different sizes, float4 and float8.
 */
#ifndef COLUMNAR_VECTOR_JOIN_TABLE_H
#define COLUMNAR_VECTOR_JOIN_TABLE_H

#include "exec/batch/key_filter.h"
#include "exec/collection/vector_store.h"

typedef struct VectorJoinTable VectorJoinTable;

/* nkeys >= 1. Memory: a child of the current context. */
extern VectorJoinTable *vector_join_table_create(int nkeys, const VectorKey *keys);

/* Adds rows with the numbers that follow: 0, 1, 2 ...  A row with a NULL key is counted, and never found. */
extern void vector_join_table_add(VectorJoinTable *table, Vector *const *keys,
								  const uint16 *selection, uint32 nselected);

/* After the last row, before the first look-up. */
extern void vector_join_table_finish(VectorJoinTable *table);

/*
 * rows[i] = the first row with the keys of selection[i], or VECTOR_NO_ROW.  Returns how many
 * were found.  Adds nothing to the table, whatever is looked up.
 */
extern uint32 vector_join_table_find(VectorJoinTable *table, Vector *const *keys,
									 const uint16 *selection, uint32 nselected, uint32 *rows);

/*
 * Lists those of selection[] that are found, and their first rows.  Returns how many.  positions may be
 * selection.
 */
extern uint32
vector_join_table_list(VectorJoinTable *table, Vector *const *keys, const uint16 *selection,
					   uint32 nselected, uint16 *positions, uint32 *rows);

/* Has no two rows the same keys? */
extern bool vector_join_table_is_unique(const VectorJoinTable *table);

/* The next row with the keys of this one, in ascending order; VECTOR_NO_ROW after the last. */
extern uint32 vector_join_table_next(const VectorJoinTable *table, uint32 row);

/*
 * The range of a key's values that can be found, as column_type_to_int() has them; false if the key's
 * zone order is not ZONE_INT (integers, date, timestamp ...), or there are none.
 */
extern bool vector_join_table_range(const VectorJoinTable *table, int key, int64 *low, int64 *high);

/* Before the end of adding: which parts of that range have keys; nothing if there is no range. */
extern void vector_join_table_zones(VectorJoinTable *table, int key, KeyZones *zones);

/* Is there no row that can be found? */
extern bool vector_join_table_is_empty(const VectorJoinTable *table);

/*
 * Bytes in use; before the end of adding, with those that it is going to take, but for 4 a
 * row if keys are not unique.
 */
extern Size vector_join_table_memory(const VectorJoinTable *table);

/* Forgets all rows. */
extern void vector_join_table_reset(VectorJoinTable *table);

#endif
