/*
 * compat/catalog.h
 *		Differences between major versions: what the catalogs tell of columns, constraints and collations.
 */
#ifndef STRATA_COMPAT_CATALOG_H
#define STRATA_COMPAT_CATALOG_H

#include "catalog/pg_attribute.h"
#include "utils/syscache.h"

/* A column's statistics target, -1 for the default; nullable in pg_attribute since 17. */
static inline int
compat_statistics_target(Oid relation, AttrNumber attribute)
{
	HeapTuple tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relation), Int16GetDatum(attribute));
	bool null;
	Datum value;
	int target;

	if (!HeapTupleIsValid(tuple))
		return -1;
	value = SysCacheGetAttr(ATTNUM, tuple, Anum_pg_attribute_attstattarget, &null);
#if PG_VERSION_NUM >= 170000
	target = null ? -1 : DatumGetInt16(value);
#else
	target = null ? -1 : DatumGetInt32(value);
#endif
	ReleaseSysCache(tuple);
	return target;
}

/*
 * Has the column that stands at this position of a relation's descriptor a value in all rows?  attnotnull says so of new rows alone
 * since 18, as NOT NULL may be NOT VALID.
 */
#if PG_VERSION_NUM >= 180000
#define compat_column_is_never_null(descriptor, position) \
	(TupleDescCompactAttr(descriptor, position)->attnullability == ATTNULLABLE_VALID)
#else
#define compat_column_is_never_null(descriptor, position) \
	(TupleDescAttr(descriptor, position)->attnotnull)
#endif

/*
 * NOT NULL of a table's column is a constraint with a name since 18, which may be NOT VALID or NO INHERIT.
 * compat_find_not_null(): a column's, NULL if it has none; compat_not_null_column(): the constraint's column, 0 if it is another
 * kind of constraint.
 */
#if PG_VERSION_NUM >= 180000
#define COMPAT_NOT_NULL_IS_CONSTRAINT true
#define compat_find_not_null(relation, column) findNotNullConstraintAttnum(relation, column)
#define compat_not_null_column(tuple)                                       \
	(((Form_pg_constraint) GETSTRUCT(tuple))->contype == CONSTRAINT_NOTNULL \
		 ? extractNotNullColumn(tuple)                                      \
		 : InvalidAttrNumber)
#else
#define COMPAT_NOT_NULL_IS_CONSTRAINT false
#define compat_find_not_null(relation, column) ((HeapTuple) NULL)
#define compat_not_null_column(tuple) InvalidAttrNumber
#endif

/* Foreign keys that are not checked: NOT ENFORCED, and NOT VALID ones of partitioned tables, are of 18. */
#if PG_VERSION_NUM >= 180000
#define COMPAT_TREES_HAVE_INVALID_KEYS true
#define compat_is_enforced(constraint) ((constraint)->is_enforced)
#define compat_constraint_is_enforced(form) ((form)->conenforced)
#else
#define COMPAT_TREES_HAVE_INVALID_KEYS false
#define compat_is_enforced(constraint) true
#define compat_constraint_is_enforced(form) true
#endif

/* Partitioned tables have exclusion constraints that compare the partition key for equality; since 17. */
#if PG_VERSION_NUM >= 170000
#define COMPAT_TREES_HAVE_EXCLUSIONS true
#else
#define COMPAT_TREES_HAVE_EXCLUSIONS false
#endif

/* The primary key's index; one that is deferrable is asked for by name since 18. */
#if PG_VERSION_NUM >= 180000
#define compat_primary_key_index(relation) RelationGetPrimaryKeyIndex(relation, false)
#else
#define compat_primary_key_index(relation) RelationGetPrimaryKeyIndex(relation)
#endif

/* Does the collation order texts as memcmp() does?  A field of the locale since 18. */
#if PG_VERSION_NUM >= 180000
#include "utils/pg_locale.h"

static inline bool
compat_collation_is_c(Oid collation)
{
	return OidIsValid(collation) && pg_newlocale_from_collation(collation)->collate_is_c;
}
#else
#define compat_collation_is_c(collation) lc_collate_is_c(collation)
#endif

/* Does the domain, or one below it, have constraints?  19 also tells whether they are volatile. */
#if PG_VERSION_NUM >= 190000
#define compat_domain_has_constraints(type) DomainHasConstraints(type, NULL)
#else
#define compat_domain_has_constraints DomainHasConstraints
#endif

/* Publications that name the table; 19 has such that name what they leave out. */
#if PG_VERSION_NUM >= 190000
#define compat_relation_publications GetRelationIncludedPublications
#else
#define compat_relation_publications GetRelationPublications
#endif

#endif
