
-- ---------------------------------------------------------------------------
-- New rows under policies and views
-- ---------------------------------------------------------------------------

-- VOLATILE: with constants alone it would be called where no row is changed.
CREATE FUNCTION strata.checked_value(value anyelement, holds boolean, is_view boolean, relation text, policy text)
    RETURNS anyelement
    LANGUAGE C VOLATILE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'strata_checked_value';
COMMENT ON FUNCTION strata.checked_value(anyelement, boolean, boolean, text, text) IS
    'the value, if the new row satisfies the condition of a policy, or of a view''s WITH CHECK OPTION';
