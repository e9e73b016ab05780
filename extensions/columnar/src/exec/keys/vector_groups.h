/*
 * vector_groups.h
 *		From the values of GROUP BY to group numbers 0, 1, 2 ... in order of appearance.
 *
 * Equality is that of the types' default btree and hash operator classes: 1.1 and 1.10 are
 * one group, and so are 0.0 and -0.0, NaN and NaN, NULL and NULL, and character(n) values
 * that differ in trailing blanks.  What a group shows is the value that came first.
 */
#ifndef COLUMNAR_VECTOR_GROUPS_H
#define COLUMNAR_VECTOR_GROUPS_H

#include "exec/vector/vector.h"

typedef struct VectorGroups VectorGroups;

typedef struct VectorKey
{
	Oid type; /* has a default hash operator class, or is held as an integer */
	int32 typmod;
	Oid collation;	 /* deterministic */
	bool determined; /* rows that agree in the other keys agree in this one: it is only shown */
} VectorKey;

/* What an expression's values are. */
extern VectorKey vector_key_of(const Node *expression);
extern void vector_key_type(const VectorKey *key, ColumnType *type);

/* Can values of this type and collation be grouped here?  (A pure look-up, for the planner.) */
extern bool vector_groups_can_key(Oid type, Oid collation);

/* Are equal values the same to every function?  Not 1.1 and 1.10, 0 and -0. */
extern bool vector_groups_are_alike(Oid type, Oid collation);

/* nkeys >= 1, one of them not determined. Memory: a child of the current context. */
extern VectorGroups *vector_groups_create(int nkeys, const VectorKey *keys);

/* No group. */
#define VECTOR_NO_GROUP PG_UINT32_MAX

/*
 * numbers[i] = group of row selection[i]; new groups are made, but of closed groups the number is
 * VECTOR_NO_GROUP then.  Returns how many groups there are.
 */
extern uint32 vector_groups_assign(VectorGroups *groups, Vector *const *keys,
								   const uint16 *selection, uint32 nselected, uint32 *numbers);

/* No groups are made any more, until the reset. */
extern void vector_groups_close(VectorGroups *groups);

extern uint32 vector_groups_count(const VectorGroups *groups);

/* A key of a group: the datum lives until the reset, or is made in the current context. */
extern Datum vector_groups_value(const VectorGroups *groups, int key, uint32 group, bool *isnull);

/* Bytes in use. */
extern Size vector_groups_memory(const VectorGroups *groups);

/* Forgets all groups. */
extern void vector_groups_reset(VectorGroups *groups);

#endif
