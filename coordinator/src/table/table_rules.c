/*
 * table_rules.c
 *		May this table be distributed, and have this constraint?
 *
 * A distributed table promises what PostgreSQL promises: constraints hold,
 * triggers fire, equal keys meet.  What the workers cannot keep by themselves,
 * each looking at its own shards only, is refused here before anything is sent.
 *
 * Row level security is no obstacle: policies are applied by the coordinator's
 * planner, workers only ever see queries that contain them.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/hash.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_publication.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "cluster/metadata.h"
#include "compat.h"
#include "plan/only_here.h"
#include "table/foreign_key_rules.h"
#include "table/table_rules.h"
#include "table/table_tree.h"
#include "values/row_format.h"

static const char *
get_kind_name(bool is_reference)
{
	return is_reference ? "reference" : "distributed";
}

/* ---------------------------------------------------------------- the table itself */

static void
refuse_table(Relation relation, bool is_reference, int code, const char *detail, const char *hint)
{
	ereport(ERROR, (errcode(code),
					errmsg("table \"%s\" cannot be a %s table", RelationGetRelationName(relation),
						   get_kind_name(is_reference)),
					errdetail("%s", detail), hint != NULL ? errhint("%s", hint) : 0));
}

/* A reference table is one with all its parents and children, a distributed one has neither. */
static void
check_relatives(Relation relation, bool is_reference, const List *members)
{
	Form_pg_class class = relation->rd_rel;
	Oid relid = RelationGetRelid(relation);
	Oid parent;

	if (!is_reference)
	{
		if (class->relispartition || has_superclass(relid))
			refuse_table(relation, is_reference, ERRCODE_WRONG_OBJECT_TYPE,
						 "It is a partition or inherits from another table.", NULL);
		if (class->relhassubclass && find_inheritance_children(relid, NoLock) != NIL)
			refuse_table(relation, is_reference, ERRCODE_WRONG_OBJECT_TYPE,
						 "Other tables inherit from it.", NULL);
		return;
	}
	parent = table_tree_parent_outside(relid, members, false);
	if (OidIsValid(parent))
		refuse_table(relation, is_reference, ERRCODE_WRONG_OBJECT_TYPE,
					 psprintf("It %s table \"%s\", which is none.",
							  class->relispartition ? "is a partition of" : "inherits from",
							  get_rel_name(parent)),
					 "Make that one a reference table: partitions and children go along.");
}

static void
check_relation_kind(Relation relation, bool is_reference, const List *members)
{
	Form_pg_class class = relation->rd_rel;
	bool partitioned = class->relkind == RELKIND_PARTITIONED_TABLE;
	/* below a parent, which may be one, it is our limit */
	bool has_parent = class->relispartition || has_superclass(RelationGetRelid(relation));
	int wrong = has_parent ? ERRCODE_FEATURE_NOT_SUPPORTED : ERRCODE_WRONG_OBJECT_TYPE;

	if (partitioned && !is_reference)
		refuse_table(relation, is_reference, ERRCODE_FEATURE_NOT_SUPPORTED,
					 "It is partitioned on the coordinator.",
					 "Use a table without partitions: the shards will be its partitions.");
	if (!partitioned && class->relkind != RELKIND_RELATION)
		refuse_table(relation, is_reference, wrong, "It is not an ordinary table.", NULL);
	if (class->relpersistence == RELPERSISTENCE_TEMP)
		refuse_table(relation, is_reference, wrong,
					 "It is temporary, and other servers cannot see it.", NULL);
	if (class->relpersistence == RELPERSISTENCE_UNLOGGED)
		refuse_table(relation, is_reference, ERRCODE_FEATURE_NOT_SUPPORTED,
					 "It is unlogged: one server's crash would empty it there only.",
					 "Use ALTER TABLE ... SET LOGGED before.");
	if (IsSystemRelation(relation) ||
		RelationGetNamespace(relation) == get_namespace_oid("strata", true))
		refuse_table(relation, is_reference, wrong, "It is a catalog.", NULL);
	check_relatives(relation, is_reference, members);
	if (!partitioned && class->relam != HEAP_TABLE_AM_OID && !metadata_is_shell(relation))
		refuse_table(relation, is_reference, ERRCODE_FEATURE_NOT_SUPPORTED,
					 psprintf("Its access method is \"%s\".", get_am_name(class->relam)),
					 "Use ALTER TABLE ... SET ACCESS METHOD heap before.");
}

void
table_rules_check_table(Relation relation, bool is_reference, const List *members)
{
	const DistributedTable *table = metadata_table(RelationGetRelid(relation));

	if (table != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is already a %s table", RelationGetRelationName(relation),
						get_kind_name(table->kind == TABLE_REFERENCE)),
				 errhint("SELECT strata.undistribute_table() makes it local again.")));

	check_relation_kind(relation, is_reference, members);
	table_rules_check_columns(relation, is_reference);
	if (is_reference && metadata_is_shell(relation))
		refuse_table(relation, is_reference, ERRCODE_WRONG_OBJECT_TYPE,
					 "Its access method is \"distributed\".", NULL);
	if (!is_reference)
	{
		if (compat_relation_publications(RelationGetRelid(relation)) != NIL)
			refuse_table(relation, is_reference, ERRCODE_FEATURE_NOT_SUPPORTED,
						 "It is part of a publication, which would miss the rows on the workers.",
						 "Drop it from the publication.");
	}
	if (bms_is_empty(metadata_all_workers()))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the cluster has no workers"),
						errhint("Add one with SELECT strata.add_worker(name, conninfo).")));
}

/* ---------------------------------------------------------------- its columns */

static bool
walk_column(Node *node, AttrNumber *column)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
		return ((Var *) node)->varattno == *column;
	return expression_tree_walker(node, walk_column, column);
}

bool
table_rules_check_names_row(Node *expr)
{
	AttrNumber whole_row = InvalidAttrNumber;

	return walk_column(expr, &whole_row);
}

/* ERROR if what the table computes is another thing on the workers; `what` has places for its name and the table's. */
static void
check_expression(Relation relation, bool is_reference, Node *expr, const char *what,
				 const char *name)
{
	AttrNumber tableoid = TableOidAttributeNumber;

	if (walk_column(expr, &tableoid))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("%s cannot use tableoid",
							   psprintf(what, name, RelationGetRelationName(relation))),
						errdetail("The workers would compute it, and their tables have OIDs of "
								  "their own.")));
	if (!is_reference && table_rules_check_names_row(expr))
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s cannot use the whole row",
					psprintf(what, name, RelationGetRelationName(relation))),
			 errdetail(
				 "The workers have partitioned tables, and each partition a row type of its own."),
			 errhint("Name the columns: ROW(a, b).")));
}

/* An index's expressions or predicate as they are stored: the relation cache would fold constants, by users' functions. */
static void
check_index_part(Relation relation, bool is_reference, HeapTuple tuple, AttrNumber part)
{
	Oid index = ((Form_pg_index) GETSTRUCT(tuple))->indexrelid;
	bool isnull;
	Datum expr = SysCacheGetAttr(INDEXRELID, tuple, part, &isnull);

	if (!isnull)
		check_expression(relation, is_reference, stringToNode(TextDatumGetCString(expr)),
						 "index \"%s\" of table \"%s\"", get_rel_name(index));
}

void
table_rules_check_index(Relation relation, bool is_reference, const IndexStmt *create)
{
	const char *what = "index \"%s\" of table \"%s\"";
	ListCell *lc;

	foreach(lc, create->indexParams)
		check_expression(relation, is_reference, lfirst_node(IndexElem, lc)->expr, what,
						 create->idxname);
	check_expression(relation, is_reference, create->whereClause, what, create->idxname);
}

void
table_rules_check_columns(Relation relation, bool is_reference)
{
	TupleDesc desc = RelationGetDescr(relation);
	TupleConstr *constraints = desc->constr;
	ListCell *lc;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (!column->attisdropped && only_here_type(column->atttypid))
			ereport(
				ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of table \"%s\" has a type that workers do not have",
						NameStr(column->attname), RelationGetRelationName(relation)),
				 errdetail("Only the coordinator has type %s: it is temporary, or made of a local "
						   "table's row type.",
						   format_type_be(column->atttypid)),
				 errhint("Use CREATE TYPE ... AS, or distribute that table first.")));
	}
	foreach(lc, RelationGetIndexList(relation))
	{
		HeapTuple tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(lc)));

		check_index_part(relation, is_reference, tuple, Anum_pg_index_indexprs);
		check_index_part(relation, is_reference, tuple, Anum_pg_index_indpred);
		ReleaseSysCache(tuple);
	}
	if (relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		check_expression(relation, is_reference,
						 (Node *) RelationGetPartitionKey(relation)->partexprs,
						 "partition key%s of table \"%s\"", "");
	if (constraints == NULL)
		return;
	for (int i = 0; i < constraints->num_defval; i++)
	{
		const AttrDefault *value = &constraints->defval[i];
		Form_pg_attribute column = TupleDescAttr(desc, value->adnum - 1);

		if (column->attgenerated != '\0')
			check_expression(relation, is_reference, stringToNode(value->adbin),
							 "generated column \"%s\" of table \"%s\"", NameStr(column->attname));
	}
	for (int i = 0; i < constraints->num_check; i++)
		check_expression(relation, is_reference, stringToNode(constraints->check[i].ccbin),
						 "check constraint \"%s\" of table \"%s\"", constraints->check[i].ccname);
}

/* ---------------------------------------------------------------- the key */

static Oid
find_enum(Oid type)
{
	return get_typtype(type) == TYPTYPE_ENUM ? type : row_format_find_part(type, find_enum);
}

/*
 * The part of a type that makes its hash differ between servers, because it is
 * made from OIDs; InvalidOid when every server hashes equal values alike.
 */
static Oid
find_unstable_type(Oid type)
{
	Oid named = row_format_find_object_identifier(type);

	return OidIsValid(named) ? named : find_enum(type);
}

/*
 * Why a column cannot be a key (*code is the error's), NULL when it can; then *hash_type is
 * the type under which it is hashed, the same for domains and binary-compatible types.
 * The codes are those that PostgreSQL has for partition keys.
 */
static char *
find_key_fault(Form_pg_attribute column, Oid *hash_type, int *code)
{
	Oid base = getBaseType(column->atttypid);
	TypeCacheEntry *type = lookup_type_cache(base, TYPECACHE_HASH_EXTENDED_PROC);
	Oid opclass;
	Oid input;
	Oid unstable;

	*code = ERRCODE_INVALID_OBJECT_DEFINITION;
	if (column->attgenerated != '\0')
		return psprintf("It is a generated column.");
	*code = ERRCODE_UNDEFINED_OBJECT;
	if (!OidIsValid(type->hash_extended_proc))
		return psprintf("Type %s has no hash function for partitioning.",
						format_type_be(column->atttypid));
	*code = ERRCODE_FEATURE_NOT_SUPPORTED;
	unstable = find_unstable_type(base);
	if (OidIsValid(unstable))
		return psprintf("Values of type %s hash differently on each server, because their "
						"representation contains OIDs.",
						format_type_be(unstable));

	opclass = GetDefaultOpClass(base, HASH_AM_OID);
	input = get_opclass_input_type(opclass);
	*hash_type = IsPolymorphicType(input) || input == RECORDOID ? base : input;
	return NULL;
}

static AttrNumber
find_named_key(Relation relation, const char *name)
{
	AttrNumber attribute = get_attnum(RelationGetRelid(relation), name);

	if (attribute == InvalidAttrNumber)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("column \"%s\" of table \"%s\" does not exist", name,
							   RelationGetRelationName(relation)),
						errhint("The distribution key must be a column of the table.")));
	if (attribute < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
						errmsg("system column \"%s\" cannot be a distribution key", name)));
	return attribute;
}

/* The first column of the primary key, else the first column that can be a key. */
static AttrNumber
choose_key(Relation relation)
{
	TupleDesc desc = RelationGetDescr(relation);
	Oid primary_key;

	RelationGetIndexList(relation); /* sets rd_pkindex */
	primary_key = relation->rd_pkindex;
	if (OidIsValid(primary_key))
	{
		Relation index = relation_open(primary_key, AccessShareLock);
		AttrNumber attribute = index->rd_index->indkey.values[0];

		relation_close(index, AccessShareLock);
		return attribute;
	}

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);
		Oid hash_type;
		int code;

		if (!column->attisdropped && find_key_fault(column, &hash_type, &code) == NULL)
			return column->attnum;
	}
	ereport(ERROR, (errcode(ERRCODE_INVALID_TABLE_DEFINITION),
					errmsg("table \"%s\" has no column that can be a distribution key",
						   RelationGetRelationName(relation)),
					errhint("Add a column of a type with hashing, such as bigint, text or uuid.")));
}

AttrNumber
table_rules_check_key(Relation relation, const char *name, Oid *hash_type, Oid *collation)
{
	AttrNumber attribute = name != NULL ? find_named_key(relation, name) : choose_key(relation);
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(relation), attribute - 1);
	int code;
	char *fault = find_key_fault(column, hash_type, &code);

	if (fault != NULL)
		ereport(ERROR, (errcode(code),
						errmsg("column \"%s\" of table \"%s\" cannot be the distribution key",
							   NameStr(column->attname), RelationGetRelationName(relation)),
						errdetail("%s", fault),
						errhint("Choose another column, of a type such as bigint, text or uuid.")));
	*collation = column->attcollation;
	return attribute;
}

/* ---------------------------------------------------------------- unique constraints */

static bool
contains(const AttrNumber *columns, int count, AttrNumber wanted)
{
	for (int i = 0; i < count; i++)
	{
		if (columns[i] == wanted)
			return true;
	}
	return false;
}

void
table_rules_check_unique(Oid table, const char *index, const AttrNumber *columns, int count,
						 AttrNumber key, AttrNumber period)
{
	if (!contains(columns, count, key))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("unique index \"%s\" of table \"%s\" does not contain the distribution key "
						"\"%s\"",
						index, get_rel_name(table), get_attname(table, key, false)),
				 errdetail("Each worker only sees the rows of its own shards, so only rows with "
						   "equal keys can be compared."),
				 errhint("Add column \"%s\" to the index or constraint, or distribute the table by "
						 "one of its columns.",
						 get_attname(table, key, false))));
	if (AttributeNumberIsValid(period) && !contains(columns, count, period))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("unique index \"%s\" of table \"%s\" does not contain the column "
							   "\"%s\" of the periods",
							   index, get_rel_name(table), get_attname(table, period, false)),
						errdetail("PostgreSQL compares rows within one period only."),
						errhint("Add column \"%s\" to the index or constraint.",
								get_attname(table, period, false))));
}

/* Does an exclusion constraint only compare rows whose values of the column are equal? */
static bool
excludes_equal(Relation index, AttrNumber column)
{
	const Form_pg_index form = index->rd_index;
	Oid type = get_atttype(form->indrelid, column);
	Oid *operators;
	Oid *functions;
	uint16 *strategies;

	RelationGetExclusionInfo(index, &operators, &functions, &strategies);
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		if (form->indkey.values[i] == column &&
			operators[i] == lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr)
			return true;
	}
	return false;
}

/* ERROR if rows of several shards would have to be compared, or of several periods. */
static void
check_exclusion(Oid index, AttrNumber key, AttrNumber period)
{
	Relation relation = index_open(index, AccessShareLock);
	Oid table = relation->rd_index->indrelid;
	AttrNumber missing = key;

	if (COMPAT_TREES_HAVE_EXCLUSIONS && excludes_equal(relation, key))
		missing = AttributeNumberIsValid(period) && !excludes_equal(relation, period)
					  ? period
					  : InvalidAttrNumber;
	if (AttributeNumberIsValid(missing))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("exclusion constraint \"%s\" of table \"%s\" is not supported",
						RelationGetRelationName(relation), get_rel_name(table)),
				 errdetail(COMPAT_TREES_HAVE_EXCLUSIONS
							   ? "Each worker only sees the rows of its own shards, so only rows "
								 "with equal keys (and in one period) can be compared."
							   : "PostgreSQL has no exclusion constraints on partitioned tables, "
								 "which the workers' are, before version 17."),
				 errhint(COMPAT_TREES_HAVE_EXCLUSIONS
							 ? "Add \"%s WITH =\" to the constraint, or use a reference table."
							 : "Use a unique constraint that contains the distribution key \"%s\", "
							   "or a reference table.",
						 get_attname(table, missing, false))));
	index_close(relation, AccessShareLock);
}

void
table_rules_check_unique_index(Oid index, AttrNumber key, AttrNumber period)
{
	HeapTuple tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);
	char *name = get_rel_name(index);

	if (form->indisexclusion)
		check_exclusion(index, key, period);
	else if (form->indisunique)
		table_rules_check_unique(form->indrelid, name, form->indkey.values, form->indnkeyatts, key,
								 period);
	ReleaseSysCache(tuple);
}

/* ---------------------------------------------------------------- back to local */

void
table_rules_check_undistribute(Relation relation, const List *members)
{
	Oid relid = RelationGetRelid(relation);
	Oid parent = table_tree_parent_outside(relid, members, true);

	if (OidIsValid(parent))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" cannot become local", RelationGetRelationName(relation)),
				 errdetail("It %s reference table \"%s\".",
						   relation->rd_rel->relispartition ? "is a partition of" : "inherits from",
						   get_rel_name(parent)),
				 errhint("Undistribute that one, or take the table out of it first.")));
	foreign_key_rules_check_undistribute(relation, members);
}
