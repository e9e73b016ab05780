/*
 * ddl_alter_part.c
 *		The parts of an ALTER TABLE as SQL for the workers.
 *
 * The workers' SQL is made from the parse tree and, after the command ran here, from the catalog:
 * so names are qualified, what is the coordinator's alone can be left out, and a value that is
 * the same for all rows (now(), a setting) is computed once, here.  In this order:
 *
 *	1. one ALTER TABLE with all parts but those below; columns with a default get it for the
 *	   existing rows, and lose it again, as defaults act here;
 *	2. columns that draw from a sequence of their own come in commands of their own, between those for
 *	   their neighbours, because columns have the same order on all nodes: the coordinator
 *	   reserves as many values as there are rows, and each worker numbers its rows from a share;
 *	3. what PostgreSQL does not pass on to partitions, or does not have for partitioned tables:
 *	   storage parameters, options and compression of columns, the owner;
 *	4. new constraints, from the catalog, because PostgreSQL chooses their names;
 *	5. VALIDATE and ALTER CONSTRAINT, which may name new ones.
 */
#include "postgres.h"

#include "ddl/ddl_alter_part.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/heap.h"
#include "catalog/namespace.h"
#include "catalog/pg_constraint.h"
#include "commands/defrem.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "parser/parse_collate.h"
#include "parser/parse_expr.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "rewrite/rewriteHandler.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "compat.h"
#include "cluster/relation_name.h"
#include "ddl/numbered_column.h"
#include "plan/explicit_cast.h"
#include "stream/remote_ddl.h"
#include "table/table_rules.h"
#include "table/table_tree.h"
#include "table/worker_table_sql.h"
#include "values/row_format.h"

/* A column that was added. */
typedef struct NewColumn
{
	AttrNumber attribute;
	char *name;
	char *sql;		  /* NULL: it draws its values from a sequence of its own */
	bool has_default; /* sql sets a default that is to be dropped again */
} NewColumn;

struct AlterParts
{
	Oid relation;
	TableKind kind;
	bool only;			  /* not the children of a reference table */
	List *tree;			  /* a partitioned reference table and what is below it, else NIL */
	TreeIndexes *indexes; /* the tree's, before */
	bool drops_constraint;
	bool rebuilds; /* indexes, for columns of other types */
	List *commands;
	List *usings;			  /* parallel to commands: text of USING, name of a parent, or NULL */
	AttrNumber last_column;	  /* columns with greater numbers are new */
	List *constraints_before; /* names (String) that no new constraint has */

	/* parts of ALTER TABLE, separated by commas */
	StringInfoData drops; /* what PostgreSQL does before all else */
	StringInfoData changes;
	StringInfoData after; /* may name new constraints */

	List *added;		/* NewColumn *, in order */
	List *used_indexes; /* names of indexes that have become a constraint's */
	List *all;			/* texts for the table and every partition */
	List *leaves;		/* texts for those that hold rows */
};

/* ---------------------------------------------------------------- expressions */

static void
refuse_expression(Oid relid, const char *column, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("cannot compute column \"%s\" of the rows of table \"%s\" because it is "
						   "on several nodes",
						   column, get_rel_name(relid)),
					errdetail("%s", detail),
					errhint("Add the column without default, fill it by UPDATE, and then SET "
							"DEFAULT or ADD GENERATED AS IDENTITY.")));
}

static bool
uses_sequence(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, NextValueExpr))
		return true;
	if (IsA(node, FuncExpr))
	{
		switch (((FuncExpr *) node)->funcid)
		{
			case F_NEXTVAL:
			case F_CURRVAL:
			case F_LASTVAL:
			case F_SETVAL_REGCLASS_INT8:
			case F_SETVAL_REGCLASS_INT8_BOOL:
				return true;
			default:
				break;
		}
	}
	return expression_tree_walker(node, uses_sequence, context);
}

/* With what has one value for the whole statement replaced by this value. */
static Node *
fold_stable(Node *expression)
{
	PlannerGlobal global = {.type = T_PlannerGlobal};
	PlannerInfo root = {.type = T_PlannerInfo, .glob = &global};

	return estimate_expression_value(&root, expression);
}

/* An expression that each worker evaluates for its rows, as text; ERROR if they cannot. */
static char *
deparse_for_rows(Relation relation, const char *column, TableKind kind, Node *expression)
{
	Node *folded = fold_stable(expression);
	List *context = deparse_context_for(RelationGetRelationName(relation),
										RelationGetRelid(relation));
	int level;
	char *text;

	level = row_format_enter_sql_mode();
	text = deparse_expression(explicit_cast_expression(folded), context, false, false);
	row_format_leave_sql_mode(level);
	if (kind == TABLE_DISTRIBUTED && table_rules_check_names_row(folded))
		refuse_expression(RelationGetRelid(relation), column,
						  psprintf("PostgreSQL has no whole rows, as in expression %s, on "
								   "partitioned tables, which the workers' are.",
								   text));
	if (kind == TABLE_REFERENCE && contain_volatile_functions(folded))
		refuse_expression(
			RelationGetRelid(relation), column,
			psprintf("The copies would differ: expression %s has another value each time.", text));
	if (uses_sequence(folded, NULL))
		refuse_expression(RelationGetRelid(relation), column,
						  psprintf("The workers have no sequences, as expression %s uses.", text));
	return text;
}

static Node *
transform_for_rows(const UtilityCall *call, Relation relation, Node *raw, ParseExprKind kind)
{
	ParseState *pstate = make_parsestate(NULL);
	Node *expression;

	pstate->p_sourcetext = call->source;
	addNSItemToQuery(
		pstate, addRangeTableEntryForRelation(pstate, relation, AccessShareLock, NULL, false, true),
		false, true, true);
	expression = transformExpr(pstate, copyObject(raw), kind);
	assign_expr_collations(pstate, expression);
	free_parsestate(pstate);
	return expression;
}

/* ---------------------------------------------------------------- before */

static bool
is_serial(const ColumnDef *column)
{
	return column->typeName != NULL && list_length(column->typeName->names) == 1 &&
		   strstr(strVal(linitial(column->typeName->names)), "serial") != NULL;
}

/* The values of a new column of a reference table are computed by each node for itself. */
static void
check_new_column(const UtilityCall *call, Relation relation, const ColumnDef *column)
{
	ListCell *cell;

	foreach(cell, column->constraints)
	{
		const Constraint *constraint = lfirst_node(Constraint, cell);

		if (constraint->contype == CONSTR_IDENTITY)
			refuse_expression(RelationGetRelid(relation), column->colname,
							  "The copies would differ: rows are numbered in any order.");
		if (constraint->contype == CONSTR_DEFAULT && constraint->raw_expr != NULL)
			(void) deparse_for_rows(
				relation, column->colname, TABLE_REFERENCE,
				transform_for_rows(call, relation, constraint->raw_expr, EXPR_KIND_COLUMN_DEFAULT));
	}
	if (is_serial(column))
		refuse_expression(RelationGetRelid(relation), column->colname,
						  "The copies would differ: rows are numbered in any order.");
}

static char *
prepare_using(const UtilityCall *call, AlterParts *parts, Relation relation,
			  const AlterTableCmd *command)
{
	const ColumnDef *column = castNode(ColumnDef, command->def);

	if (column->raw_default == NULL)
		return NULL;
	return deparse_for_rows(
		relation, command->name, parts->kind,
		transform_for_rows(call, relation, column->raw_default, EXPR_KIND_ALTER_COL_TRANSFORM));
}

/* Names of the constraints that are there already, and that the command does not replace. */
static List *
list_kept_constraints(Relation relation, List *commands)
{
	List *names = NIL;
	ListCell *cell;

	foreach(cell, worker_table_sql_constraint_names(relation))
	{
		bool replaced = false;
		ListCell *part;

		foreach(part, commands)
		{
			const AlterTableCmd *command = lfirst_node(AlterTableCmd, part);
			const char *name = NULL;

			if (command->subtype == AT_DropConstraint)
				name = command->name;
			else if (command->subtype == AT_AddConstraint)
				name = castNode(Constraint, command->def)->conname;
			replaced |= name != NULL && strcmp(name, strVal(lfirst(cell))) == 0;
		}
		if (!replaced)
			names = lappend(names, lfirst(cell));
	}
	return names;
}

AlterParts *
alter_parts_prepare(const UtilityCall *call, const DistributedTable *table, List *commands)
{
	AlterParts *parts = palloc0(sizeof(AlterParts));
	Relation relation = table_open(table->relation, NoLock);
	ListCell *cell;

	parts->relation = table->relation;
	parts->kind = table->kind;
	if (table->kind == TABLE_REFERENCE)
	{
		const AlterTableStmt *alter = castNode(AlterTableStmt, call->statement->utilityStmt);

		/* a type's name has no flag, and its tables change with their children */
		parts->only = alter->objtype != OBJECT_TYPE && !alter->relation->inh;
		if (relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
			parts->tree = table_tree_members(table->relation, AccessShareLock);
		parts->indexes = table_tree_indexes(parts->tree);
	}
	parts->commands = copyObject(commands);
	parts->last_column = RelationGetNumberOfAttributes(relation);
	initStringInfo(&parts->drops);
	initStringInfo(&parts->changes);
	initStringInfo(&parts->after);
	parts->constraints_before = list_kept_constraints(relation, commands);
	foreach(cell, commands)
	{
		const AlterTableCmd *command = lfirst_node(AlterTableCmd, cell);
		char *using = NULL;

		if (command->subtype == AT_AddColumn)
		{
			const ColumnDef *column = castNode(ColumnDef, command->def);

			if (parts->kind == TABLE_REFERENCE)
				check_new_column(call, relation, column);
		}
		else if (command->subtype == AT_AlterColumnType)
			using = prepare_using(call, parts, relation, command);
		else if (command->subtype == AT_AddInherit || command->subtype == AT_DropInherit)
			using = relation_name_qualified(
				RangeVarGetRelid(castNode(RangeVar, command->def), NoLock, false));
		parts->drops_constraint |= command->subtype == AT_DropConstraint;
		parts->rebuilds |= command->subtype == AT_AlterColumnType ||
						   compat_is_set_expression(command->subtype);
		parts->usings = lappend(parts->usings, using);
	}
	table_close(relation, NoLock);
	return parts;
}

/* ---------------------------------------------------------------- columns with values */

/* Does another part of the statement change the default?  Existing rows get what the column had when it was added. */
static bool
has_later_default(const AlterParts *parts, const char *column)
{
	ListCell *cell;

	foreach(cell, parts->commands)
	{
		const AlterTableCmd *command = lfirst_node(AlterTableCmd, cell);

		if (((command->subtype == AT_ColumnDefault && command->def != NULL) ||
			 command->subtype == AT_AddIdentity) &&
			strcmp(command->name, column) == 0)
			return true;
	}
	return false;
}

/* The default that the definition of a new column gives it, NULL if none. */
static Node *
cook_own_default(const UtilityCall *call, Form_pg_attribute column, const ColumnDef *definition)
{
	ListCell *cell;

	if (is_serial(definition))
		refuse_expression(column->attrelid, NameStr(column->attname),
						  "A column that numbers the rows gets another default.");
	foreach(cell, definition->constraints)
	{
		const Constraint *constraint = lfirst_node(Constraint, cell);
		ParseState *pstate;

		if (constraint->contype != CONSTR_DEFAULT || constraint->raw_expr == NULL)
			continue;
		pstate = make_parsestate(NULL);
		pstate->p_sourcetext = call->source;
		return cookDefault(pstate, copyObject(constraint->raw_expr), column->atttypid,
						   column->atttypmod, NameStr(column->attname), '\0');
	}
	return get_typdefault(column->atttypid);
}

/* How the existing rows get a new column: NULL if by nothing, else " DEFAULT ..." */
static char *
build_default(const UtilityCall *call, AlterParts *parts, Relation relation, AttrNumber attribute,
			  const ColumnDef *definition)
{
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(relation), attribute - 1);
	Node *expression;

	if (column->attgenerated != '\0')
		return NULL;
	if (has_later_default(parts, NameStr(column->attname)))
		expression = cook_own_default(call, column, definition);
	else
		expression = build_column_default(relation, attribute);
	if (expression == NULL)
		return NULL;
	return psprintf(" DEFAULT %s",
					deparse_for_rows(relation, NameStr(column->attname), parts->kind, expression));
}

/* ---------------------------------------------------------------- after: one part */

static void append_part(StringInfo list, const char *format, ...) pg_attribute_printf(2, 3);

static void
append_part(StringInfo list, const char *format, ...)
{
	int needed;

	if (list->len > 0)
		appendStringInfoString(list, ", ");
	do
	{
		va_list arguments;

		va_start(arguments, format);
		needed = appendStringInfoVA(list, format, arguments);
		va_end(arguments);
		if (needed != 0)
			enlargeStringInfo(list, needed);
	} while (needed != 0);
}

static void
build_add_column(const UtilityCall *call, AlterParts *parts, Relation relation,
				 const AlterTableCmd *command)
{
	const ColumnDef *definition = castNode(ColumnDef, command->def);
	const char *name = definition->colname;
	NewColumn *added;
	char *value;
	ListCell *cell;

	/* IF NOT EXISTS, of a column that was there before or that the same statement adds */
	if (get_attnum(parts->relation, name) <= parts->last_column)
		return;
	foreach(cell, parts->added)
	{
		if (strcmp(((NewColumn *) lfirst(cell))->name, name) == 0)
			return;
	}
	added = palloc0(sizeof(NewColumn));
	added->name = pstrdup(name);
	added->attribute = get_attnum(parts->relation, name);
	parts->added = lappend(parts->added, added);
	if (numbered_column_is(relation, added->attribute) && !has_later_default(parts, name))
		return;
	value = build_default(call, parts, relation, added->attribute, definition);
	added->has_default = value != NULL;
	added->sql = psprintf("ADD COLUMN %s%s", worker_table_sql_column(relation, added->attribute),
						  value != NULL ? value : "");
}

static void
build_column_type(AlterParts *parts, Relation relation, const char *column, const char *using)
{
	AttrNumber attribute = get_attnum(parts->relation, column);
	Form_pg_attribute form = TupleDescAttr(RelationGetDescr(relation), attribute - 1);

	append_part(&parts->changes, "ALTER COLUMN %s TYPE %s", quote_identifier(column),
				format_type_with_typemod(form->atttypid, form->atttypmod));
	if (OidIsValid(form->attcollation))
		appendStringInfo(&parts->changes, " COLLATE %s",
						 generate_collation_name(form->attcollation));
	if (using != NULL)
		appendStringInfo(&parts->changes, " USING %s", using);
}

/* (name = 'value', ...) or (name, ...) */
static char *
build_options(List *options, bool values)
{
	StringInfoData sql;
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		appendStringInfoString(&sql, sql.len == 0 ? "(" : ", ");
		if (option->defnamespace != NULL)
			appendStringInfo(&sql, "%s.", quote_identifier(option->defnamespace));
		appendStringInfoString(&sql, quote_identifier(option->defname));
		if (values)
			appendStringInfo(
				&sql, " = %s",
				quote_literal_cstr(option->arg == NULL ? "true" : defGetString(option)));
	}
	appendStringInfoChar(&sql, ')');
	return sql.data;
}

static void
build_constraint_change(AlterParts *parts, const AlterTableCmd *command)
{
	const CompatAlterConstraint *change = (const CompatAlterConstraint *) command->def;
	const char *inheritance = compat_new_inheritance(change);
	const char *enforcement = compat_new_enforcement(change);

	if (inheritance[0] != '\0' && parts->kind == TABLE_REFERENCE)
		append_part(&parts->after, "ALTER CONSTRAINT %s%s", quote_identifier(change->conname),
					inheritance);
	if (compat_alters_deferrability(change))
		append_part(&parts->after, "ALTER CONSTRAINT %s %s INITIALLY %s",
					quote_identifier(change->conname),
					change->deferrable ? "DEFERRABLE" : "NOT DEFERRABLE",
					change->initdeferred ? "DEFERRED" : "IMMEDIATE");
	if (enforcement[0] != '\0')
		append_part(&parts->after, "ALTER CONSTRAINT %s%s", quote_identifier(change->conname),
					enforcement);
}

/* ADD CONSTRAINT ... USING INDEX: partitioned tables cannot, so the constraint gets a new index there. */
static void
note_used_index(AlterParts *parts, Relation relation, const Constraint *constraint)
{
	if (constraint->indexname != NULL)
		parts->used_indexes = lappend(
			parts->used_indexes,
			quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
									   constraint->indexname));
}

static void
build_part(const UtilityCall *call, AlterParts *parts, Relation relation,
		   const AlterTableCmd *command, char *using)
{
	char *column = command->name == NULL ? "" : pstrdup(quote_identifier(command->name));
	const char *cascade = command->behavior == DROP_CASCADE ? " CASCADE" : "";
	const char *if_exists = command->missing_ok ? "IF EXISTS " : "";
	List *options = command->def != NULL && IsA(command->def, List) ? (List *) command->def : NIL;

	/* dropped by another part: a partitioned table would drop it before it comes to its partitions */
	if ((command->subtype == AT_DropNotNull || command->subtype == AT_DropExpression) &&
		get_attnum(parts->relation, command->name) == InvalidAttrNumber)
		return;
	if (compat_is_set_expression(command->subtype))
	{
		AttrNumber attribute = get_attnum(parts->relation, command->name);

		append_part(&parts->changes, "ALTER COLUMN %s SET EXPRESSION AS (%s)", column,
					worker_table_sql_generation_expression(relation, attribute));
		return;
	}
	switch (command->subtype)
	{
		case AT_AddColumn:
			build_add_column(call, parts, relation, command);
			break;
		case AT_DropColumn:
			append_part(&parts->drops, "DROP COLUMN %s%s%s", if_exists, column, cascade);
			break;
		case AT_AlterColumnType:
			build_column_type(parts, relation, command->name, using);
			break;
		case AT_SetNotNull:
			/*
			 * A new column has it from the start; a partitioned table would look for the column too early.  A
			 * constraint comes first, by its name; then there is nothing more to do, but to validate an old one.
			 */
			if (get_attnum(parts->relation, command->name) <= parts->last_column)
				append_part(COMPAT_NOT_NULL_IS_CONSTRAINT ? &parts->after : &parts->changes,
							"ALTER COLUMN %s SET NOT NULL", column);
			break;
		case AT_DropNotNull:
			append_part(&parts->drops, "ALTER COLUMN %s DROP NOT NULL", column);
			break;
		case AT_DropExpression:
			append_part(&parts->drops, "ALTER COLUMN %s DROP EXPRESSION %s", column, if_exists);
			break;
		case AT_SetStatistics:
			append_part(&parts->changes, "ALTER COLUMN %s SET STATISTICS %d", column,
						command->def == NULL ? -1 : intVal(command->def));
			break;
		case AT_SetStorage:
			append_part(&parts->changes, "ALTER COLUMN %s SET STORAGE %s", column,
						quote_identifier(strVal(command->def)));
			break;
		case AT_SetCompression:
			parts->all = lappend(parts->all, psprintf("ALTER COLUMN %s SET COMPRESSION %s", column,
													  quote_identifier(strVal(command->def))));
			break;
		case AT_SetOptions:
		case AT_ResetOptions:
			parts->all = lappend(
				parts->all, psprintf("ALTER COLUMN %s %s %s", column,
									 command->subtype == AT_SetOptions ? "SET" : "RESET",
									 build_options(options, command->subtype == AT_SetOptions)));
			break;
		case AT_SetRelOptions:
		case AT_ResetRelOptions:
			parts->leaves = lappend(
				parts->leaves,
				psprintf("%s %s", command->subtype == AT_SetRelOptions ? "SET" : "RESET",
						 build_options(options, command->subtype == AT_SetRelOptions)));
			break;
		case AT_ChangeOwner:
			parts->all = lappend(
				parts->all,
				psprintf("OWNER TO %s", quote_identifier(get_rolespec_name(command->newowner))));
			break;
		case AT_DropConstraint:
			append_part(&parts->drops, "DROP CONSTRAINT %s%s%s", if_exists, column, cascade);
			break;
		case AT_AddConstraint:
			note_used_index(parts, relation, castNode(Constraint, command->def));
			break;
		case AT_ValidateConstraint:
			append_part(&parts->after, "VALIDATE CONSTRAINT %s", column);
			break;
		case AT_AlterConstraint:
			build_constraint_change(parts, command);
			break;
		case AT_AddInherit:
		case AT_DropInherit:
			append_part(&parts->after, "%s %s",
						command->subtype == AT_AddInherit ? "INHERIT" : "NO INHERIT", using);
			break;
		default: /* new constraints come from the catalog; the rest is the coordinator's */
			break;
	}
}

/* ---------------------------------------------------------------- after: all parts */

/*
 * The constraint's ALTER TABLE, NULL if it is of another table, comes with another constraint or a new column, or was there
 * before.  Those of a partitioned table's indexes are made with the partitions' parts.
 */
static char *
build_new_constraint(const AlterParts *parts, Oid oid)
{
	HeapTuple tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(oid));
	Form_pg_constraint form;
	char *sql = NULL;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	form = (Form_pg_constraint) GETSTRUCT(tuple);
	if (form->conrelid == parts->relation && !OidIsValid(form->conparentid) &&
		(parts->tree == NIL || !OidIsValid(form->conindid) ||
		 form->contype == CONSTRAINT_FOREIGN) &&
		compat_not_null_column(tuple) <= parts->last_column &&
		!list_member(parts->constraints_before, makeString(pstrdup(NameStr(form->conname)))))
		sql = worker_table_sql_inherited_check(form, pg_get_constraintdef_command(oid));
	ReleaseSysCache(tuple);
	return sql;
}

static void
send_constraints(const UtilityCall *call, const AlterParts *parts)
{
	ListCell *cell;

	foreach(cell, ddl_created_objects(call))
	{
		const ObjectAddress *address = lfirst(cell);
		char *sql = NULL;
		int level;

		if (address->classId != ConstraintRelationId)
			continue;
		level = row_format_enter_sql_mode();
		sql = build_new_constraint(parts, address->objectId);
		row_format_leave_sql_mode(level);
		if (sql != NULL)
			remote_ddl_send(sql);
	}
}

static void
send_alter(const char *table, const char *sql)
{
	if (sql[0] != '\0')
		remote_ddl_send(psprintf("ALTER TABLE %s %s", table, sql));
}

static void
send_tree_indexes(const AlterParts *parts)
{
	char *names = parts->rebuilds ? table_tree_index_names(parts->tree) : "";

	if (names[0] != '\0')
		remote_ddl_send(names);
	table_tree_send_new_indexes(parts->tree, parts->indexes, parts->drops_constraint);
}

/* A reference table's children have what PostgreSQL gives them here, a distributed one's partitions all of it. */
static void
send_to_partitions(const AlterParts *parts, const char *table, List *actions, bool leaves_only)
{
	ListCell *cell;

	foreach(cell, actions)
	{
		if (parts->kind == TABLE_REFERENCE)
			send_alter(table, lfirst(cell));
		else
			ddl_alter_partitions(table, leaves_only, lfirst(cell));
	}
}

static bool
has_numbered_columns(const AlterParts *parts)
{
	ListCell *cell;

	foreach(cell, parts->added)
	{
		if (((NewColumn *) lfirst(cell))->sql == NULL)
			return true;
	}
	return false;
}

/* The columns that are there now, the parts that need them, and no defaults: those act here. */
static void
send_columns(AlterParts *parts, Relation relation, const char *table)
{
	bool split = has_numbered_columns(parts);
	StringInfoData sql;
	StringInfoData defaults;
	ListCell *cell;

	initStringInfo(&sql);
	initStringInfo(&defaults);
	appendStringInfoString(&sql, parts->drops.data);
	foreach(cell, parts->added)
	{
		NewColumn *column = lfirst(cell);

		if (column->sql != NULL)
			append_part(&sql, "%s", column->sql);
		else
		{
			send_alter(table, sql.data);
			resetStringInfo(&sql);
			numbered_column_add(relation, column->attribute);
		}
		if (column->has_default)
			append_part(&defaults, "ALTER COLUMN %s DROP DEFAULT", quote_identifier(column->name));
	}
	if (parts->changes.len > 0)
	{
		if (split)
		{
			send_alter(table, sql.data);
			resetStringInfo(&sql);
		}
		append_part(&sql, "%s", parts->changes.data);
	}
	send_alter(table, sql.data);
	send_alter(table, defaults.data);
}

void
alter_parts_send(const UtilityCall *call, AlterParts *parts)
{
	Relation relation = table_open(parts->relation, NoLock);
	char *table = psprintf("%s%s", parts->only ? "ONLY " : "",
						   relation_name_qualified(parts->relation));
	int level = row_format_enter_sql_mode();
	ListCell *command;
	ListCell *using;
	ListCell *cell;

	forboth(command, parts->commands, using, parts->usings)
		build_part(call, parts, relation, lfirst(command), lfirst(using));
	row_format_leave_sql_mode(level);

	send_columns(parts, relation, table);
	send_to_partitions(parts, table, parts->all, false);
	send_to_partitions(parts, table, parts->leaves, true);
	foreach(cell, parts->used_indexes)
		remote_ddl_send(psprintf("DROP INDEX IF EXISTS %s", (char *) lfirst(cell)));
	if (parts->tree != NIL)
		send_tree_indexes(parts);
	send_constraints(call, parts);
	send_alter(table, parts->after.data);
	table_close(relation, NoLock);
}
