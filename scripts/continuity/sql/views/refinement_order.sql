-- one system, model, method, step rule, amplitude and seed: order of convergence of a trained model
-- refinement_order [] log2(drift to step s / drift to step s/2), averaged over step scales up to 1
WITH pairs AS (
    SELECT c.system, c.model, c.method, c.step_rule, c.amplitude, c.seed, log2(c.drift / f.drift) AS ratio
    FROM refinement AS c
    JOIN refinement AS f USING (system, model, method, step_rule, amplitude, seed)
    WHERE f.step_scale = c.step_scale / 2 AND c.step_scale <= 1 AND c.drift > 0 AND f.drift > 0
)
SELECT system, model, method, step_rule, amplitude, seed, avg(ratio) AS refinement_order
FROM pairs GROUP BY ALL
ORDER BY ALL
