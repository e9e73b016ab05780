/*
 * distribution_check.c
 *		May this table be distributed?
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
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "cluster/metadata.h"
#include "plan/only_here.h"
#include "table/distribution_check.h"
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

bool
distribution_check_trigger(int16 type)
{
	if (TRIGGER_FOR_ROW(type))
		return TRIGGER_FOR_BEFORE(type) && !TRIGGER_FOR_UPDATE(type) && !TRIGGER_FOR_DELETE(type);
	return !TRIGGER_FOR_UPDATE(type) && !TRIGGER_FOR_DELETE(type);
}

static void
check_triggers(Relation relation)
{
	TriggerDesc *triggers = relation->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger *trigger = &triggers->triggers[i];

		if (!trigger->tgisinternal && !distribution_check_trigger(trigger->tgtype))
			refuse_table(relation, false, ERRCODE_FEATURE_NOT_SUPPORTED,
						 psprintf("Trigger \"%s\" could not be fired: UPDATE and DELETE run on the "
								  "workers, and inserted rows are stored there.",
								  trigger->tgname),
						 "BEFORE INSERT row triggers and statement triggers for INSERT and "
						 "TRUNCATE are possible.");
	}
}

static void
check_relation_kind(Relation relation, bool is_reference)
{
	Form_pg_class class = relation->rd_rel;
	int wrong = ERRCODE_WRONG_OBJECT_TYPE;

	if (class->relkind == RELKIND_PARTITIONED_TABLE)
		refuse_table(relation, is_reference, ERRCODE_FEATURE_NOT_SUPPORTED,
					 "It is partitioned on the coordinator.",
					 "Use a table without partitions: the shards will be its partitions.");
	if (class->relkind != RELKIND_RELATION)
		refuse_table(relation, is_reference, wrong, "It is not an ordinary table.", NULL);
	if (class->relpersistence == RELPERSISTENCE_TEMP)
		refuse_table(relation, is_reference, wrong,
					 "It is temporary, and other servers cannot see it.", NULL);
	if (class->relpersistence == RELPERSISTENCE_UNLOGGED)
		refuse_table(relation, is_reference, ERRCODE_FEATURE_NOT_SUPPORTED,
					 "It is unlogged: one server's crash would empty it there only.",
					 "Use ALTER TABLE ... SET LOGGED before.");
	if (OidIsValid(class->reloftype))
		refuse_table(relation, is_reference, ERRCODE_FEATURE_NOT_SUPPORTED,
					 "It is a typed table: changes of its type would not reach the workers.",
					 "Use ALTER TABLE ... NOT OF before.");
	if (IsSystemRelation(relation) ||
		RelationGetNamespace(relation) == get_namespace_oid("strata", true))
		refuse_table(relation, is_reference, wrong, "It is a catalog.", NULL);
	if (class->relispartition || has_superclass(RelationGetRelid(relation)))
		refuse_table(relation, is_reference, wrong,
					 "It is a partition or inherits from another table.", NULL);
	if (class->relhassubclass &&
		find_inheritance_children(RelationGetRelid(relation), NoLock) != NIL)
		refuse_table(relation, is_reference, wrong, "Other tables inherit from it.", NULL);
	if (class->relam != HEAP_TABLE_AM_OID && !metadata_is_shell(relation))
		refuse_table(relation, is_reference, ERRCODE_FEATURE_NOT_SUPPORTED,
					 psprintf("Its access method is \"%s\".", get_am_name(class->relam)),
					 "Use ALTER TABLE ... SET ACCESS METHOD heap before.");
}

void
distribution_check_table(Relation relation, bool is_reference)
{
	const DistributedTable *table = metadata_table(RelationGetRelid(relation));

	if (table != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is already a %s table", RelationGetRelationName(relation),
						get_kind_name(table->kind == TABLE_REFERENCE)),
				 errhint("SELECT strata.undistribute_table() makes it local again.")));

	check_relation_kind(relation, is_reference);
	distribution_check_columns(relation, is_reference);
	if (is_reference && metadata_is_shell(relation))
		refuse_table(relation, is_reference, ERRCODE_WRONG_OBJECT_TYPE,
					 "Its access method is \"distributed\".", NULL);
	if (relation->rd_rules != NULL)
		refuse_table(relation, is_reference, ERRCODE_FEATURE_NOT_SUPPORTED, "It has rewrite rules.",
					 "Drop the rules, or use triggers.");
	if (!is_reference)
	{
		check_triggers(relation);
		if (GetRelationPublications(RelationGetRelid(relation)) != NIL)
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
distribution_check_names_row(Node *expr)
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
	if (!is_reference && distribution_check_names_row(expr))
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
distribution_check_index(Relation relation, bool is_reference, const IndexStmt *create)
{
	const char *what = "index \"%s\" of table \"%s\"";
	ListCell *lc;

	foreach(lc, create->indexParams)
		check_expression(relation, is_reference, lfirst_node(IndexElem, lc)->expr, what,
						 create->idxname);
	check_expression(relation, is_reference, create->whereClause, what, create->idxname);
}

void
distribution_check_columns(Relation relation, bool is_reference)
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
distribution_check_key(Relation relation, const char *name, Oid *hash_type, Oid *collation)
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
is_key_in_index(Form_pg_index index, AttrNumber key_attribute)
{
	for (int i = 0; i < index->indnkeyatts; i++)
	{
		if (index->indkey.values[i] == key_attribute)
			return true;
	}
	return false;
}

void
distribution_check_unique(Relation relation, AttrNumber key_attribute, AttrNumber period_attribute)
{
	ListCell *cell;
	char *key = get_attname(RelationGetRelid(relation), key_attribute, false);

	foreach(cell, RelationGetIndexList(relation))
	{
		Relation index = relation_open(lfirst_oid(cell), AccessShareLock);
		Form_pg_index form = index->rd_index;
		char *name = pstrdup(RelationGetRelationName(index));
		bool unique = form->indisunique;
		bool exclusion = form->indisexclusion;
		bool has_key = is_key_in_index(form, key_attribute);
		bool has_period = !AttributeNumberIsValid(period_attribute) ||
						  is_key_in_index(form, period_attribute);

		relation_close(index, AccessShareLock);
		if (exclusion)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("exclusion constraint \"%s\" is not supported on a distributed table",
							name),
					 errdetail("Each worker only sees the rows of its own shards."),
					 errhint("Drop the constraint before distributing the table.")));
		if (unique && !has_key)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("unique index \"%s\" does not contain the distribution key \"%s\"",
							name, key),
					 errdetail("Each worker only sees the rows of its own shards, so only rows "
							   "with equal keys can be compared."),
					 errhint("Add column \"%s\" to the constraint, or distribute the table by "
							 "one of the constraint's columns.",
							 key)));
		if (unique && !has_period)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("unique index \"%s\" does not contain the column \"%s\" of the periods",
							name, get_attname(RelationGetRelid(relation), period_attribute, false)),
					 errdetail("PostgreSQL compares rows within one period only."),
					 errhint("Add column \"%s\" to the constraint, or leave partition_by out.",
							 get_attname(RelationGetRelid(relation), period_attribute, false))));
	}
}

/* ---------------------------------------------------------------- foreign keys */

/* Does the foreign key compare one table's key column with the other's? */
static bool
is_key_paired(HeapTuple constraint, AttrNumber referencing_key, AttrNumber referenced_key)
{
	int count;
	AttrNumber referencing[INDEX_MAX_KEYS];
	AttrNumber referenced[INDEX_MAX_KEYS];
	Oid pf_equal[INDEX_MAX_KEYS];
	Oid pp_equal[INDEX_MAX_KEYS];
	Oid ff_equal[INDEX_MAX_KEYS];
	int set_count;
	AttrNumber set_columns[INDEX_MAX_KEYS];

	DeconstructFkConstraintRow(constraint, &count, referencing, referenced, pf_equal, pp_equal,
							   ff_equal, &set_count, set_columns);
	for (int i = 0; i < count; i++)
	{
		if (referencing[i] == referencing_key && referenced[i] == referenced_key)
			return true;
	}
	return false;
}

/* May this foreign key point from the table to its target? */
static void
check_outgoing_foreign_key(Relation relation, HeapTuple tuple, AttrNumber key_attribute,
						   int colocation_id)
{
	Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT(tuple);
	bool to_itself = constraint->confrelid == RelationGetRelid(relation);
	bool is_reference = key_attribute == InvalidAttrNumber;
	const DistributedTable *target = to_itself ? NULL : metadata_table(constraint->confrelid);
	char *name = NameStr(constraint->conname);
	char *target_name = get_rel_name(constraint->confrelid);

	if (!constraint->convalidated)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("foreign key \"%s\" is not validated", name),
				 errhint("Run ALTER TABLE ... VALIDATE CONSTRAINT, or drop the constraint.")));

	if (is_reference)
	{
		if (to_itself || (target != NULL && target->kind == TABLE_REFERENCE))
			return;
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("foreign key \"%s\" of a reference table must point to a reference table",
					name),
			 errdetail("Table \"%s\" is %s.", target_name,
					   target == NULL ? "local" : "distributed"),
			 errhint("Make \"%s\" a reference table first, or drop the constraint.", target_name)));
	}

	if (target != NULL && target->kind == TABLE_REFERENCE)
		return;
	if (to_itself ? is_key_paired(tuple, key_attribute, key_attribute)
				  : target != NULL && target->colocation->id == colocation_id &&
						is_key_paired(tuple, key_attribute, target->key_attribute))
		return;

	if (!to_itself && target == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("foreign key \"%s\" points to the local table \"%s\"", name, target_name),
				 errhint("Make \"%s\" a reference table with strata.create_reference_table(), or "
						 "distribute it by the referenced column first.",
						 target_name)));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("foreign key \"%s\" leads to other workers", name),
			 errdetail("A foreign key between distributed tables must contain both distribution "
					   "keys, at the same position, and the tables must be colocated."),
			 errhint("Distribute both tables by the columns of the constraint, with "
					 "colocate_with => '%s', or make \"%s\" a reference table.",
					 target_name, target_name)));
}

/* May another table's foreign key point to this table? */
static void
check_incoming_foreign_key(Relation relation, HeapTuple tuple, AttrNumber key_attribute,
						   int colocation_id)
{
	Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT(tuple);
	char *name = RelationGetRelationName(relation);
	char *source_name = get_rel_name(constraint->conrelid);
	const DistributedTable *source;

	/* To a reference table anybody may point: its rows are on every node. */
	if (key_attribute == InvalidAttrNumber || constraint->conrelid == RelationGetRelid(relation))
		return;
	source = metadata_table(constraint->conrelid);
	if (source != NULL && source->kind == TABLE_DISTRIBUTED &&
		source->colocation->id == colocation_id &&
		is_key_paired(tuple, source->key_attribute, key_attribute))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("foreign key \"%s\" of table \"%s\" points to table \"%s\"",
					NameStr(constraint->conname), source_name, name),
			 errdetail("Only tables that are colocated with a distributed table can refer to it."),
			 errhint("Drop the constraint, distribute \"%s\", then \"%s\" with colocate_with => "
					 "'%s', both by columns of the constraint, and add it again.",
					 name, source_name, name)));
}

/* Call check for each foreign key whose column `attribute` of pg_constraint is the relation. */
static void
check_each_foreign_key(Relation relation, AttrNumber attribute, AttrNumber key_attribute,
					   int colocation_id, void (*check)(Relation, HeapTuple, AttrNumber, int))
{
	Relation catalog = table_open(ConstraintRelationId, AccessShareLock);
	bool outgoing = attribute == Anum_pg_constraint_conrelid;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;

	/* pg_constraint has no index on confrelid. */
	ScanKeyInit(&key, attribute, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationGetRelid(relation)));
	scan = systable_beginscan(catalog, outgoing ? ConstraintRelidTypidNameIndexId : InvalidOid,
							  outgoing, NULL, 1, &key);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		if (((Form_pg_constraint) GETSTRUCT(tuple))->contype == CONSTRAINT_FOREIGN)
			check(relation, tuple, key_attribute, colocation_id);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
}

void
distribution_check_foreign_keys(Relation relation, AttrNumber key_attribute, int colocation_id)
{
	check_each_foreign_key(relation, Anum_pg_constraint_conrelid, key_attribute, colocation_id,
						   check_outgoing_foreign_key);
	check_each_foreign_key(relation, Anum_pg_constraint_confrelid, key_attribute, colocation_id,
						   check_incoming_foreign_key);
}

/* ---------------------------------------------------------------- undistribute */

static void
refuse_undistribute(Relation relation, HeapTuple tuple)
{
	Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT(tuple);

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" cannot become local", RelationGetRelationName(relation)),
			 errdetail("Foreign key \"%s\" of table \"%s\" points to table \"%s\", and both are on "
					   "the workers.",
					   NameStr(constraint->conname), get_rel_name(constraint->conrelid),
					   get_rel_name(constraint->confrelid)),
			 errhint("Drop the constraint first.")));
}

/* From a local table, a foreign key may still point to a reference table. */
static void
check_outgoing_when_local(Relation relation, HeapTuple tuple, AttrNumber key_attribute,
						  int colocation_id)
{
	Oid target = ((Form_pg_constraint) GETSTRUCT(tuple))->confrelid;
	const DistributedTable *table = metadata_table(target);

	if (target != RelationGetRelid(relation) && table != NULL && table->kind == TABLE_DISTRIBUTED)
		refuse_undistribute(relation, tuple);
}

static void
check_incoming_when_local(Relation relation, HeapTuple tuple, AttrNumber key_attribute,
						  int colocation_id)
{
	Oid source = ((Form_pg_constraint) GETSTRUCT(tuple))->conrelid;

	if (source != RelationGetRelid(relation) && metadata_table(source) != NULL)
		refuse_undistribute(relation, tuple);
}

void
distribution_check_undistribute(Relation relation)
{
	check_each_foreign_key(relation, Anum_pg_constraint_conrelid, InvalidAttrNumber, 0,
						   check_outgoing_when_local);
	check_each_foreign_key(relation, Anum_pg_constraint_confrelid, InvalidAttrNumber, 0,
						   check_incoming_when_local);
}
