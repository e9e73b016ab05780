/*
 * ddl_text.c
 *		The text of a command, as the workers can read it.
 *
 * Most commands travel as they were typed.  What means something else there, or nothing, is replaced in the text, at
 * the places that the parse tree names: CURRENT_USER and its like, because a worker's session has another session_user;
 * table.column%TYPE in a function's signature, because the table may be the coordinator's only.  PostgreSQL keeps
 * the type that it meant when the command ran, and not the table.
 */
#include "postgres.h"

#include <ctype.h>

#include "ddl/ddl.h"

#include "catalog/namespace.h"
#include "nodes/makefuncs.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* Text that stands in the place of some of the command's; location as in the parse tree. */
typedef struct TextEdit
{
	int location;
	int length;
	char *text;
} TextEdit;

static List *
add_edit(List *edits, int location, int length, char *text)
{
	TextEdit *edit = palloc(sizeof(TextEdit));

	edit->location = location;
	edit->length = length;
	edit->text = text;
	return lappend(edits, edit);
}

static int
compare_locations(const ListCell *a, const ListCell *b)
{
	return ((const TextEdit *) lfirst(a))->location - ((const TextEdit *) lfirst(b))->location;
}

/* The text, which begins at that location, with all edits.  Of two for one place, one counts. */
static char *
apply_edits(const char *text, int start, List *edits)
{
	StringInfoData result;
	ListCell *cell;
	int done = 0;

	list_sort(edits, compare_locations);
	initStringInfo(&result);
	foreach(cell, edits)
	{
		const TextEdit *edit = lfirst(cell);
		int offset = edit->location - start;

		if (offset < done)
			continue;
		appendBinaryStringInfo(&result, text + done, offset - done);
		appendStringInfoString(&result, edit->text);
		done = offset + edit->length;
	}
	appendStringInfoString(&result, text + done);
	return result.data;
}

/* ---------------------------------------------------------------- types of columns */

/* Adds to *found the names of types in the command that are written table.column%TYPE. */
static void
find_column_types(Node *node, List **found)
{
	ListCell *cell;

	if (node == NULL)
		return;
	switch (nodeTag(node))
	{
		case T_List:
			foreach(cell, (List *) node)
				find_column_types(lfirst(cell), found);
			break;
		case T_TypeName:
			if (((TypeName *) node)->pct_type)
				*found = lappend(*found, node);
			break;
		case T_FunctionParameter:
			find_column_types((Node *) ((FunctionParameter *) node)->argType, found);
			break;
		case T_ObjectWithArgs:
			find_column_types((Node *) ((ObjectWithArgs *) node)->objargs, found);
			find_column_types((Node *) ((ObjectWithArgs *) node)->objfuncargs, found);
			break;
		case T_DefElem:
			find_column_types(((DefElem *) node)->arg, found);
			break;
		case T_CreateFunctionStmt:
			find_column_types((Node *) ((CreateFunctionStmt *) node)->parameters, found);
			find_column_types((Node *) ((CreateFunctionStmt *) node)->returnType, found);
			break;
		case T_DefineStmt:
			find_column_types((Node *) ((DefineStmt *) node)->args, found);
			find_column_types((Node *) ((DefineStmt *) node)->definition, found);
			break;
		case T_CreateCastStmt:
			find_column_types((Node *) ((CreateCastStmt *) node)->func, found);
			break;
		case T_AlterFunctionStmt:
			find_column_types((Node *) ((AlterFunctionStmt *) node)->func, found);
			break;
		case T_DropStmt:
			find_column_types((Node *) ((DropStmt *) node)->objects, found);
			break;
		case T_GrantStmt:
			find_column_types((Node *) ((GrantStmt *) node)->objects, found);
			break;
		case T_CommentStmt:
			find_column_types(((CommentStmt *) node)->object, found);
			break;
		case T_SecLabelStmt:
			find_column_types(((SecLabelStmt *) node)->object, found);
			break;
		case T_RenameStmt:
			find_column_types(((RenameStmt *) node)->object, found);
			break;
		case T_AlterOwnerStmt:
			find_column_types(((AlterOwnerStmt *) node)->object, found);
			break;
		case T_AlterObjectSchemaStmt:
			find_column_types(((AlterObjectSchemaStmt *) node)->object, found);
			break;
		case T_AlterObjectDependsStmt:
			find_column_types(((AlterObjectDependsStmt *) node)->object, found);
			break;
		case T_AlterExtensionContentsStmt:
			find_column_types(((AlterExtensionContentsStmt *) node)->object, found);
			break;
		default:
			break;
	}
}

Oid
ddl_column_type(const TypeName *name)
{
	List *table = list_copy_head(name->names, list_length(name->names) - 1);
	Oid relation = InvalidOid;
	AttrNumber column = InvalidAttrNumber;

	if (table != NIL && list_length(table) <= 3)
		relation = RangeVarGetRelid(makeRangeVarFromNameList(table), NoLock, true);
	if (OidIsValid(relation))
		column = get_attnum(relation, strVal(llast(name->names)));
	return column == InvalidAttrNumber ? InvalidOid : get_atttype(relation, column);
}

/* The bytes that table.column%TYPE takes at the beginning of the text; 0 if it is written in another way. */
static int
measure_column_type(const char *text)
{
	const char *at = text;

	for (bool quoted = false; *at != '\0' && (quoted || *at != '%'); at++)
	{
		if (*at == '"')
			quoted = !quoted;
	}
	if (*at == '\0')
		return 0;
	at++;
	while (isspace((unsigned char) *at))
		at++;
	return pg_strncasecmp(at, "type", 4) == 0 ? (int) (at + 4 - text) : 0;
}

static List *
edit_column_types(List *edits, const UtilityCall *call, const char *text)
{
	int start = Max(call->statement->stmt_location, 0);
	List *names = NIL;
	ListCell *cell;

	find_column_types(call->statement->utilityStmt, &names);
	foreach(cell, names)
	{
		const TypeName *name = lfirst_node(TypeName, cell);
		Oid type = ddl_column_type(name);
		int offset = name->location - start;
		int length = offset < 0 ? 0 : measure_column_type(text + offset);

		if (OidIsValid(type) && length > 0)
			edits = add_edit(edits, name->location, length, format_type_be_qualified(type));
	}
	return edits;
}

/* ---------------------------------------------------------------- roles */

/* Does the name depend on the session?  A worker's session has another session_user. */
static bool
is_session_name(const RoleSpec *role)
{
	return role->roletype == ROLESPEC_CURRENT_USER || role->roletype == ROLESPEC_CURRENT_ROLE ||
		   role->roletype == ROLESPEC_SESSION_USER;
}

static List *
edit_roles(List *edits, const UtilityCall *call, const char *text, List *roles)
{
	int start = Max(call->statement->stmt_location, 0);
	ListCell *cell;

	foreach(cell, roles)
	{
		const RoleSpec *role = lfirst(cell);

		if (role != NULL && is_session_name(role) && role->location >= start)
			edits = add_edit(edits, role->location,
							 (int) strspn(text + role->location - start,
										  "ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"),
							 pstrdup(ddl_role_name(role)));
	}
	return edits;
}

/* ---------------------------------------------------------------- the text */

/*
 * A message is read as a whole before its first command runs, and a prepared command when it was prepared: with
 * another standard_conforming_strings the workers would find other commands in the text.
 */
static void
check_reads_alike(const char *text, const Node *command)
{
	List *commands = raw_parser(text, RAW_PARSE_DEFAULT);

	if (list_length(commands) != 1 ||
		nodeTag(linitial_node(RawStmt, commands)->stmt) != nodeTag(command))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot send a command to workers that was read with another "
							   "standard_conforming_strings"),
						errhint("Change the setting in a message of its own.")));
}

char *
ddl_text_with_role_names(const UtilityCall *call, List *roles)
{
	int start = Max(call->statement->stmt_location, 0);
	int length = call->statement->stmt_len;
	List *edits = NIL;
	char *text;

	if (length <= 0)
		length = strlen(call->source) - start;
	text = pnstrdup(call->source + start, length);
	check_reads_alike(text, call->statement->utilityStmt);
	edits = edit_column_types(edits, call, text);
	edits = edit_roles(edits, call, text, roles);
	return edits == NIL ? text : apply_edits(text, start, edits);
}

char *
ddl_statement_text(const UtilityCall *call)
{
	return ddl_text_with_role_names(call, NIL);
}
