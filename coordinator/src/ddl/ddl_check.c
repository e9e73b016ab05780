/*
 * ddl_check.c
 *		Rules for constraints and indexes of tables that are spread over workers.
 *
 * A worker can enforce only what it can see: its own shards and the reference tables.
 * The rules are checked on the catalog after a command ran on the coordinator, and
 * before it is sent, so that it does not matter by which of PostgreSQL's many ways a
 * constraint came into being.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_index.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

void
ddl_refuse_unique(const char *index, const DistributedTable *table, bool has_key)
{
	if (has_key)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("unique index \"%s\" does not contain the column of table \"%s\"'s periods",
						index, get_rel_name(table->relation)),
				 errdetail("PostgreSQL compares rows within one period only."),
				 errhint("Add column \"%s\" to the index or constraint.",
						 get_attname(table->relation, table->periods.attribute, false))));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("unique index \"%s\" does not contain the distribution key of table \"%s\"",
					index, get_rel_name(table->relation)),
			 errdetail("A worker cannot see the rows of the others."),
			 errhint("Add column \"%s\" to the index or constraint.",
					 get_attname(table->relation, table->key_attribute, false))));
}

/*
 * A unique index must contain the distribution key: equal keys are on one worker, and so
 * are the rows that could violate it.
 */
static void
check_index(Oid index)
{
	HeapTuple tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	Form_pg_index form;
	const DistributedTable *table;
	bool has_key = false;
	bool has_period;

	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_index) GETSTRUCT(tuple);
	table = metadata_table(form->indrelid);
	if (table != NULL && table->kind == TABLE_DISTRIBUTED)
	{
		has_period = !metadata_has_periods(table);
		for (int i = 0; i < form->indnkeyatts; i++)
		{
			has_key |= form->indkey.values[i] == table->key_attribute;
			has_period |= form->indkey.values[i] == table->periods.attribute;
		}
		if (form->indisexclusion)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("exclusion constraints on distributed table \"%s\" are not supported",
							get_rel_name(table->relation)),
					 errdetail("PostgreSQL does not have them on partitioned tables, which the "
							   "workers' are."),
					 errhint("Use a unique constraint that contains the distribution key, or a "
							 "reference table.")));
		if (form->indisunique && (!has_key || !has_period))
			ddl_refuse_unique(get_rel_name(index), table, has_key);
	}
	ReleaseSysCache(tuple);
}

/* Zero-based place of an attribute in a constraint's column array, or -1. */
static int
find_column(HeapTuple constraint, AttrNumber array_column, AttrNumber attribute)
{
	bool null;
	Datum value = SysCacheGetAttr(CONSTROID, constraint, array_column, &null);
	ArrayType *array;
	int16 *numbers;

	if (null)
		return -1;
	array = DatumGetArrayTypeP(value);
	numbers = (int16 *) ARR_DATA_PTR(array);
	for (int i = 0; i < ARR_DIMS(array)[0]; i++)
	{
		if (numbers[i] == attribute)
			return i;
	}
	return -1;
}

/*
 * Why a foreign key cannot be enforced, or NULL when it can: the referenced row must be on
 * every node that has a referencing row.
 */
static const char *
foreign_key_problem(HeapTuple constraint, const DistributedTable *child,
					const DistributedTable *parent)
{
	int place;

	if (child == NULL)
		return parent != NULL && parent->kind == TABLE_DISTRIBUTED
				   ? "A local table cannot reference a distributed table."
				   : NULL;
	if (parent != NULL && parent->kind == TABLE_REFERENCE)
		return NULL;
	if (parent == NULL)
		return "The workers do not have the referenced table; make it a reference table.";
	if (child->kind == TABLE_REFERENCE)
		return "A reference table can only reference other reference tables.";
	if (child->colocation != parent->colocation)
		return "The tables are not colocated.";
	place = find_column(constraint, Anum_pg_constraint_conkey, child->key_attribute);
	if (place < 0 ||
		place != find_column(constraint, Anum_pg_constraint_confkey, parent->key_attribute))
		return "The foreign key must contain the distribution keys of both tables, in the same "
			   "place.";
	return NULL;
}

static void
check_constraint(Oid constraint)
{
	HeapTuple tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	Form_pg_constraint form;
	const char *problem;

	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_constraint) GETSTRUCT(tuple);
	if (form->contype == CONSTRAINT_FOREIGN)
	{
		problem = foreign_key_problem(tuple, metadata_table(form->conrelid),
									  metadata_table(form->confrelid));
		if (problem != NULL)
			ereport(
				ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("foreign key \"%s\" from table \"%s\" to table \"%s\" cannot be enforced",
						NameStr(form->conname), get_rel_name(form->conrelid),
						get_rel_name(form->confrelid)),
				 errdetail("%s", problem),
				 errhint("Foreign keys can lead to reference tables, and to colocated tables by "
						 "the distribution key.")));
	}
	ReleaseSysCache(tuple);
}

void
ddl_check_created(const UtilityCall *call)
{
	ListCell *cell;

	foreach(cell, ddl_created_objects(call))
	{
		const ObjectAddress *address = lfirst(cell);

		if (address->classId == RelationRelationId)
			check_index(address->objectId);
		else if (address->classId == ConstraintRelationId)
			check_constraint(address->objectId);
	}
}
