-- the task and encoder whose mu changes most when every sequence is cut to its first half
-- estimate [] change of mu: mu of the first halves less mu of the whole sequences
-- low [] lower end of the 95 % interval, paired over sequences
-- high [] upper end of the 95 % interval
-- n_tasks [] tasks and encoders measured
-- n_within [] those whose mu at half the length lies within the interval of mu at full length
-- note [] which task and encoder it is
WITH half AS (
    SELECT task, encoder, h.change, h.change_low, h.change_high, h.mu BETWEEN s.low AND s.high AS within
    FROM score_sensitivity AS h JOIN score_sensitivity AS s USING (task, encoder)
    WHERE h.parameter = 'length' AND h.value = 0.5 AND h.change IS NOT NULL AND s.parameter = 'score'
)
SELECT arg_max(change, abs(change)) AS estimate, arg_max(change_low, abs(change)) AS low,
    arg_max(change_high, abs(change)) AS high, count(*) AS n_tasks, count(*) FILTER (within) AS n_within,
    arg_max(task || ', ' || encoder, abs(change)) AS note
FROM half HAVING count(*) > 0
