/*
 * options.c
 *		Options of columnar tables: checked, set, found and shown.  See options.h.
 *
 * A label names columns.  It is checked when it is set and follows ALTER TABLE
 * (options_follow.c); should it name a column that does not exist all the same,
 * the name is left out when the options are used: no label makes a table unwritable.
 *
 * Labels are looked up once and kept by relation, with the column numbers they
 * mean.  Relcache invalidations of the table and of all its partition ancestors
 * forget them; changing a label sends one, as pg_seclabel has no cache of its own
 * that would.  Defaults are not kept: parameters change at any time.
 *
 * Locks: setting takes ShareUpdateExclusiveLock on the table, as SECURITY LABEL
 * does; reading takes none.
 */
#include "store/options/options.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/objectaddress.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "commands/seclabel.h"
#include "commands/tablespace.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "relation_owner.h"
#include "store/options/options_follow.h"
#include "store/options/options_label.h"
#include "store/options/settings.h"

/* ---- finding ----------------------------------------------------------------------------------- */

/* What a table's own or inherited label says, with column numbers. */
typedef struct OptionsEntry
{
	Oid relid; /* key */
	MemoryContext context;
	int nancestors;
	Oid *ancestors;
	bool has_compression;
	bool has_compression_level;
	bool has_row_group_rows;
	CompressionRule compression;
	int compression_level;
	int row_group_rows;
	int norder;
	OrderColumn *order;
	Bitmapset *bloom;
} OptionsEntry;

static HTAB *options_by_relation = NULL;

/* Counts invalidations, to notice one that comes while labels are read. */
static uint64 invalidations = 0;

static char *
get_label(Oid relid)
{
	ObjectAddress address;

	ObjectAddressSet(address, RelationRelationId, relid);
	return GetSecurityLabel(&address, OPTIONS_PROVIDER);
}

/* The column numbers of a label's columns that exist, in the current context. */
static void
resolve_columns(OptionsEntry *entry, const OptionsLabel *label)
{
	ListCell *cell;

	entry->order = palloc(sizeof(OrderColumn) * Max(list_length(label->order), 1));
	foreach(cell, label->order)
	{
		LabelOrder *column = lfirst(cell);
		AttrNumber attribute = get_attnum(entry->relid, column->column);

		if (attribute > 0)
			entry->order[entry->norder++] = (OrderColumn){.attribute = attribute,
														  .descending = column->descending,
														  .nulls_first = column->nulls_first};
	}
	foreach(cell, label->bloom)
	{
		AttrNumber attribute = get_attnum(entry->relid, lfirst(cell));

		if (attribute > 0)
			entry->bloom = bms_add_member(entry->bloom, attribute);
	}
}

/* Reads the label of the table, or of its nearest ancestor that has one. */
static void
load_entry(OptionsEntry *entry, Oid relid)
{
	char *text = get_label(relid);
	OptionsLabel label;

	entry->relid = relid;
	if (get_rel_relispartition(relid))
	{
		ListCell *cell;

		/* remembered even if not asked: one of them may get a label, or be detached */
		List *ancestors = get_partition_ancestors(relid);

		entry->ancestors = palloc(sizeof(Oid) * Max(list_length(ancestors), 1));
		foreach(cell, ancestors)
		{
			entry->ancestors[entry->nancestors++] = lfirst_oid(cell);
			if (text == NULL)
				text = get_label(lfirst_oid(cell));
		}
	}
	if (text == NULL)
		return;

	options_label_parse(text, &label);
	entry->has_compression = label.has_compression;
	entry->has_compression_level = label.has_compression_level;
	entry->has_row_group_rows = label.has_row_group_rows;
	entry->compression = label.compression;
	entry->compression_level = label.compression_level;
	entry->row_group_rows = label.row_group_rows;
	resolve_columns(entry, &label);
}

static void
forget_entry(OptionsEntry *entry)
{
	MemoryContext context = entry->context;

	hash_search(options_by_relation, &entry->relid, HASH_REMOVE, NULL);
	MemoryContextDelete(context);
}

static void
forget_options(Datum argument, Oid relid)
{
	HASH_SEQ_STATUS status;
	OptionsEntry *entry;

	invalidations++;
	if (options_by_relation == NULL || hash_get_num_entries(options_by_relation) == 0)
		return;
	hash_seq_init(&status, options_by_relation);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		bool affected = relid == InvalidOid || relid == entry->relid;

		for (int i = 0; !affected && i < entry->nancestors; i++)
			affected = relid == entry->ancestors[i];
		if (affected)
			forget_entry(entry); /* removing the entry just returned is allowed */
	}
}

/*
 * The entry of a table, from memory if possible.  It is valid until the next
 * access to a catalog.
 */
static OptionsEntry
find_entry(Oid relid)
{
	OptionsEntry *found;
	OptionsEntry entry;
	MemoryContext caller;
	MemoryContext context;
	uint64 before;

	if (options_by_relation == NULL)
	{
		HASHCTL control = {.keysize = sizeof(Oid), .entrysize = sizeof(OptionsEntry)};

		control.hcxt = CacheMemoryContext;
		options_by_relation = hash_create("columnar options", 64, &control,
										  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	found = hash_search(options_by_relation, &relid, HASH_FIND, NULL);
	if (found != NULL)
		return *found;

	context = AllocSetContextCreate(CurrentMemoryContext, "columnar options", ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(context);
	memset(&entry, 0, sizeof(entry));
	entry.context = context;
	before = invalidations;
	load_entry(&entry, relid);
	MemoryContextSwitchTo(caller);

	/* kept if it is known to be current; else it is the caller's, once */
	if (invalidations == before)
	{
		MemoryContextSetParent(context, CacheMemoryContext);
		found = hash_search(options_by_relation, &relid, HASH_ENTER, NULL);
		*found = entry;
	}
	return entry;
}

/* Not of the database's default tablespace, which is never the slow one of two. */
static bool
is_cold_tablespace(Oid tablespace)
{
	char *name;
	bool cold;

	if (!OidIsValid(tablespace) || columnar_cold_tablespace[0] == '\0')
		return false;
	name = get_tablespace_name(tablespace);
	if (name == NULL)
		return false;
	cold = strcmp(name, columnar_cold_tablespace) == 0;
	pfree(name);
	return cold;
}

static TableOptions *
get_options(Oid relid, Oid tablespace)
{
	TableOptions *options = palloc0(sizeof(TableOptions));
	OptionsEntry entry = find_entry(relid);

	if (entry.has_compression)
		options->compression = entry.compression;
	else
		options->compression = is_cold_tablespace(tablespace) ? COMPRESSION_COLD
															  : columnar_compression;
	options->compression_level = entry.has_compression_level ? entry.compression_level
															 : columnar_compression_level;
	options->row_group_rows = entry.has_row_group_rows ? entry.row_group_rows
													   : columnar_row_group_rows;
	options->norder = entry.norder;
	options->order = palloc(sizeof(OrderColumn) * Max(entry.norder, 1));
	if (entry.norder > 0)
		memcpy(options->order, entry.order, sizeof(OrderColumn) * entry.norder);
	options->bloom = bms_copy(entry.bloom);
	return options;
}

TableOptions *
options_of_table(Relation relation)
{
	return options_in_tablespace(relation, relation->rd_rel->reltablespace);
}

TableOptions *
options_in_tablespace(Relation relation, Oid tablespace)
{
	/* while a table is rewritten, its new file belongs to a relation without a label */
	return get_options(OidIsValid(relation->rd_rel->relrewrite) ? relation->rd_rel->relrewrite
																: RelationGetRelid(relation),
					   tablespace);
}

void
options_of_chunk(const TableOptions *options, AttrNumber attribute, ChunkOptions *chunk)
{
	chunk->level = options->compression_level;
	chunk->keep_numbers = false;
	chunk->bloom = bms_is_member(attribute, options->bloom);
	switch (options->compression)
	{
		case COMPRESSION_HOT:
			chunk->codec = CODEC_LZ4;
			chunk->saving = 0.10;
			chunk->keep_numbers = true;
			break;
		case COMPRESSION_COLD:
			chunk->codec = CODEC_ZSTD;
			chunk->saving = 0.03;
			break;
		case COMPRESSION_NONE:
			chunk->codec = CODEC_NONE;
			chunk->saving = 0;
			break;
		case COMPRESSION_LZ4:
			chunk->codec = CODEC_LZ4;
			chunk->saving = 0;
			break;
		case COMPRESSION_ZSTD:
			chunk->codec = CODEC_ZSTD;
			chunk->saving = 0;
			break;
	}
}

/* ---- checking ---------------------------------------------------------------------------------- */

/* Can the relation have options? */
static void
check_relation(Relation relation)
{
	char relkind = relation->rd_rel->relkind;
	const char *am = NULL;

	if (relkind == RELKIND_PARTITIONED_TABLE)
		return;
	if (relkind == RELKIND_RELATION || relkind == RELKIND_MATVIEW)
		am = get_am_name(relation->rd_rel->relam);
	if (am == NULL || strcmp(am, "columnar") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a columnar table", RelationGetRelationName(relation)),
				 errdetail("Columnar tables, columnar materialized views and partitioned "
						   "tables have such options."),
				 errhint("Convert it first with ALTER TABLE ... SET ACCESS METHOD columnar.")));
}

/* Checks a column of option `option` and its type; `columns` are those seen before. */
static Bitmapset *
check_column(Relation relation, const char *option, const char *name, Bitmapset *columns)
{
	AttrNumber attribute = get_attnum(RelationGetRelid(relation), name);
	ColumnType type;

	if (attribute <= 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("column \"%s\" of relation \"%s\" does not exist", name,
							   RelationGetRelationName(relation)),
						errdetail("It is named by option \"%s\".", option),
						errhint("Name columns of the table, no system columns.")));
	if (bms_is_member(attribute, columns))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("column \"%s\" is named twice in option \"%s\"", name, option),
						errhint("Name each column once.")));

	column_type_init(&type, TupleDescAttr(RelationGetDescr(relation), attribute - 1));
	if (strcmp(option, "order_by") == 0 && type.zone == ZONE_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("rows cannot be ordered by column \"%s\" of type %s", name,
						format_type_be(type.typid)),
				 errhint("The type needs a default btree operator class with functions in C, and "
						 "the column a deterministic collation.")));
	if (strcmp(option, "bloom") == 0 && !OidIsValid(type.hash.fn_oid))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column \"%s\" of type %s cannot have a Bloom filter", name,
						format_type_be(type.typid)),
				 errhint("The type needs a default hash operator class with functions in C, and "
						 "the column a deterministic collation.")));
	return bms_add_member(columns, attribute);
}

/* ERROR unless the table can have these options. */
static void
check_label(Relation relation, const OptionsLabel *label)
{
	Bitmapset *columns = NULL;
	ListCell *cell;

	check_relation(relation);
	foreach(cell, label->order)
	{
		LabelOrder *order = lfirst(cell);

		columns = check_column(relation, "order_by", order->column, columns);
	}
	columns = NULL;
	foreach(cell, label->bloom)
		columns = check_column(relation, "bloom", lfirst(cell), columns);
}

/* The provider's hook: SECURITY LABEL calls it, with the table locked, before it sets the label. */
static void
check_security_label(const ObjectAddress *object, const char *text)
{
	OptionsLabel label;
	Relation relation;

	if (object->classId == RelationRelationId && object->objectSubId == 0)
		CacheInvalidateRelcacheByRelid(object->objectId);
	if (text == NULL)
		return;
	if (object->classId != RelationRelationId || object->objectSubId != 0)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("security labels of \"%s\" are for tables", OPTIONS_PROVIDER)));
	options_label_parse(text, &label);
	relation = relation_open(object->objectId, AccessShareLock);
	check_label(relation, &label);
	relation_close(relation, NoLock);
}

void
options_initialize(void)
{
	register_label_provider(OPTIONS_PROVIDER, check_security_label);
	CacheRegisterRelcacheCallback(forget_options, (Datum) 0);
	options_follow_initialize();
}

/* ---- setting ----------------------------------------------------------------------------------- */

/* Opens a table whose options the user wants to change, and reads its own label. */
static Relation
open_to_change(FunctionCallInfo fcinfo, OptionsLabel *label)
{
	Oid relid;
	char *text;
	Relation relation;

	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("relation is null")));
	relid = PG_GETARG_OID(0);
	lock_own_relation(relid, ShareUpdateExclusiveLock);
	relation = relation_open(relid, NoLock);
	check_relation(relation);

	text = get_label(relid);
	options_label_parse(text != NULL ? text : "", label);
	return relation;
}

/* Leaves out columns that are gone by now: they need not be repeated to be rid of them. */
static void
remove_missing_columns(Oid relid, OptionsLabel *label)
{
	ListCell *cell;

	foreach(cell, label->order)
	{
		if (get_attnum(relid, ((LabelOrder *) lfirst(cell))->column) <= 0)
			label->order = foreach_delete_current(label->order, cell);
	}
	foreach(cell, label->bloom)
	{
		if (get_attnum(relid, lfirst(cell)) <= 0)
			label->bloom = foreach_delete_current(label->bloom, cell);
	}
}

static void
set_label(Relation relation, const OptionsLabel *label)
{
	ObjectAddress address;

	check_label(relation, label);
	ObjectAddressSet(address, RelationRelationId, RelationGetRelid(relation));
	SetSecurityLabel(&address, OPTIONS_PROVIDER, options_label_format(label));
	CacheInvalidateRelcacheByRelid(RelationGetRelid(relation));
}

/* Column names of a text[]. */
static List *
read_names(ArrayType *array)
{
	List *names = NIL;
	Datum *values;
	bool *nulls;
	int nvalues;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &nvalues);
	for (int i = 0; i < nvalues; i++)
	{
		if (nulls[i])
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("name of a column in option \"%s\" is null", "bloom")));
		names = lappend(names, TextDatumGetCString(values[i]));
	}
	return names;
}

extern PGDLLEXPORT Datum alter_columnar_table_set(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(alter_columnar_table_set);

/* alter_columnar_table_set(relation, and a value for each option; null: as it is) */
Datum
alter_columnar_table_set(PG_FUNCTION_ARGS)
{
	OptionsLabel label;
	Relation relation = open_to_change(fcinfo, &label);

	remove_missing_columns(RelationGetRelid(relation), &label);
	if (!PG_ARGISNULL(1))
	{
		label.has_compression = true;
		label.compression = options_label_check_compression(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	}
	if (!PG_ARGISNULL(2))
	{
		label.has_compression_level = true;
		label.compression_level = options_label_check_level(PG_GETARG_INT32(2));
	}
	if (!PG_ARGISNULL(3))
	{
		label.has_row_group_rows = true;
		label.row_group_rows = options_label_check_rows(PG_GETARG_INT32(3));
	}
	if (!PG_ARGISNULL(4))
		label.order = options_label_parse_order(text_to_cstring(PG_GETARG_TEXT_PP(4)));
	if (!PG_ARGISNULL(5))
		label.bloom = read_names(PG_GETARG_ARRAYTYPE_P(5));
	set_label(relation, &label);
	relation_close(relation, NoLock);
	PG_RETURN_VOID();
}

extern PGDLLEXPORT Datum alter_columnar_table_reset(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(alter_columnar_table_reset);

/* alter_columnar_table_reset(relation, and a bool for each option) */
Datum
alter_columnar_table_reset(PG_FUNCTION_ARGS)
{
	OptionsLabel label;
	Relation relation = open_to_change(fcinfo, &label);

	remove_missing_columns(RelationGetRelid(relation), &label);
	if (!PG_ARGISNULL(1) && PG_GETARG_BOOL(1))
		label.has_compression = false;
	if (!PG_ARGISNULL(2) && PG_GETARG_BOOL(2))
		label.has_compression_level = false;
	if (!PG_ARGISNULL(3) && PG_GETARG_BOOL(3))
		label.has_row_group_rows = false;
	if (!PG_ARGISNULL(4) && PG_GETARG_BOOL(4))
		label.order = NIL;
	if (!PG_ARGISNULL(5) && PG_GETARG_BOOL(5))
		label.bloom = NIL;
	set_label(relation, &label);
	relation_close(relation, NoLock);
	PG_RETURN_VOID();
}

/* ---- showing ----------------------------------------------------------------------------------- */

static Datum
show_order(Oid relid, const TableOptions *options, bool *isnull)
{
	List *order = NIL;

	for (int i = 0; i < options->norder; i++)
	{
		LabelOrder *column = palloc(sizeof(LabelOrder));

		column->column = get_attname(relid, options->order[i].attribute, false);
		column->descending = options->order[i].descending;
		column->nulls_first = options->order[i].nulls_first;
		order = lappend(order, column);
	}
	*isnull = order == NIL;
	return *isnull ? (Datum) 0 : CStringGetTextDatum(options_label_format_order(order));
}

static Datum
show_bloom(Oid relid, const TableOptions *options, bool *isnull)
{
	Datum *names = palloc(sizeof(Datum) * Max(bms_num_members(options->bloom), 1));
	int nnames = 0;
	int attribute = -1;

	while ((attribute = bms_next_member(options->bloom, attribute)) >= 0)
		names[nnames++] = CStringGetTextDatum(get_attname(relid, attribute, false));
	*isnull = nnames == 0;
	return *isnull
			   ? (Datum) 0
			   : PointerGetDatum(construct_array(names, nnames, TEXTOID, -1, false, TYPALIGN_INT));
}

extern PGDLLEXPORT Datum columnar_options(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(columnar_options);

/* columnar_options(relation): the options in effect, as a row; NULL if there is no such relation */
Datum
columnar_options(PG_FUNCTION_ARGS)
{
	Oid relid = PG_GETARG_OID(0);
	TupleDesc descriptor;
	TableOptions *options;
	Datum values[5];
	bool nulls[5] = {false};

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE ||
		descriptor->natts != lengthof(values))
		elog(ERROR, "columnar_options() must return a row of %d columns", (int) lengthof(values));
	if (get_rel_relkind(relid) == '\0')
		PG_RETURN_NULL();
	options = get_options(relid, get_rel_tablespace(relid));
	values[0] = CStringGetTextDatum(options_label_compression_name(options->compression));
	values[1] = Int32GetDatum(options->compression_level);
	values[2] = Int32GetDatum(options->row_group_rows);
	values[3] = show_order(relid, options, &nulls[3]);
	values[4] = show_bloom(relid, options, &nulls[4]);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}
