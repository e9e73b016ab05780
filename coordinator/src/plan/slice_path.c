/*
 * slice_path.c
 *		Replicated rows, each on one worker only.
 *
 * A join that keeps the rows of a reference table, or asks whether they have a partner, would do so on each worker.  Where it
 * is by the distribution key, each worker takes those rows whose partners it has: WHERE strata.owns(table, key).
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_coerce.h"
#include "parser/parse_func.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "cluster/relation_name.h"
#include "plan/slice_path.h"

/* A distributed table that the path reads, of the locus' colocation group; InvalidOid without one. */
static Oid
find_table(const DistPath *path, int colocation_id)
{
	int rti = -1;
	ListCell *lc;

	while ((rti = bms_next_member(path->relids, rti)) >= 0)
	{
		RangeTblEntry *rte = planner_rt_fetch(rti, path->root);
		const DistributedTable *table = NULL;

		if (rte->rtekind == RTE_RELATION)
			table = metadata_table(rte->relid);
		if (table != NULL && table->kind == TABLE_DISTRIBUTED &&
			table->colocation->id == colocation_id)
			return rte->relid;
	}
	foreach(lc, path->subs)
	{
		Oid table = find_table(((DistSub *) lfirst(lc))->path, colocation_id);

		if (OidIsValid(table))
			return table;
	}
	foreach(lc, path->branches)
	{
		Oid table = find_table(lfirst(lc), colocation_id);

		if (OidIsValid(table))
			return table;
	}
	return InvalidOid;
}

Expr *
slice_path_owns(Oid relation, Node *key)
{
	Oid types[] = {TEXTOID, ANYELEMENTOID};
	Oid function = LookupFuncName(list_make2(makeString("strata"), makeString("owns")), 2, types,
								  false);
	char *name = relation_name_qualified(relation);
	Const *table = makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1, CStringGetTextDatum(name),
							 false, false);

	/* parsing gives it that collation: the key's, or else that of the name */
	return (Expr *) makeFuncExpr(function, BOOLOID, list_make2(table, copyObject(key)), InvalidOid,
								 OidIsValid(exprCollation(key)) ? exprCollation(key)
																: DEFAULT_COLLATION_OID,
								 COERCE_EXPLICIT_CALL);
}

/* The key as a value of its column's type; NULL if its hash might be another one. */
static Node *
convert_key(Oid relation, const Locus *locus, Node *key)
{
	Oid type = get_atttype(relation, metadata_table(relation)->key_attribute);

	if (exprType(key) == type)
		return key;
	if (!locus_is_of_integers(locus))
		return NULL;
	return coerce_to_target_type(NULL, copyObject(key), exprType(key), type, -1, COERCION_IMPLICIT,
								 COERCE_IMPLICIT_CAST, -1);
}

DistPath *
slice_path(DistPath *path, const DistPath *other, Node *key)
{
	Oid relation = find_table(other, other->locus.colocation_id);
	Node *owned = OidIsValid(relation) ? convert_key(relation, &other->locus, key) : NULL;
	DistPath *slice;

	if (owned == NULL)
		return NULL;
	slice = dist_path_copy(path);
	slice->quals = lappend(list_copy(path->quals), slice_path_owns(relation, owned));
	slice->locus = (Locus){
		.kind = LOCUS_HASHED, .colocation_id = other->locus.colocation_id, .keys = list_make1(key)};
	return slice;
}
