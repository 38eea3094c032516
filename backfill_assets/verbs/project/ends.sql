-- The first and the last day, and whether two weeks or more have no Saturday and no Sunday.
SELECT min(day), max(day), bool_and(isodow(day) < 6) AND max(day) - min(day) > 13
FROM (SELECT {} AS day FROM rows)
