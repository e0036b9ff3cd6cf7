-- Relative distance of every architecture to the best one, per eta (METHODS: cross-fitted, beside the published form).
-- x is a log error. An architecture with a failed run in a group is no competitor there and gets no number.
-- gap: exp of the mean over systems and seeds of x - x of the architecture that is best on the *other* seeds, minus 1.
-- Its interval: residuals of x from model and seed (seeds are paired), pooled over all cells of a construction; the mean
-- of n differences of two runs has variance 2 s^2 / n.
-- gap_published: errors over their mean within a system, averaged over systems and seeds, then (e - least e) / least e.
WITH runs_of AS (
    SELECT eta, construction, readout, horizon, system, seed, model, CASE WHEN rmse > 0 THEN ln(rmse) END AS x
    FROM forecast
    WHERE model NOT IN (FROM baselines)
), expected AS (
    SELECT eta, construction, readout, horizon, count(DISTINCT (system, seed)) AS n_cells
    FROM runs_of GROUP BY ALL
), model_state AS (
    SELECT eta, construction, readout, horizon, model, count(x) AS n_ok, n_cells, count(x) = n_cells AS complete
    FROM runs_of JOIN expected USING (eta, construction, readout, horizon)
    GROUP BY eta, construction, readout, horizon, model, n_cells
), good AS (
    SELECT runs_of.*
    FROM runs_of JOIN model_state USING (eta, construction, readout, horizon, model)
    WHERE complete
), other_seeds AS (
    SELECT *, sum(x) OVER w - x AS others, count(*) OVER w - 1 AS n_others
    FROM good
    WINDOW w AS (PARTITION BY eta, construction, readout, horizon, system, model)
), best AS (
    SELECT eta, construction, readout, horizon, system, seed, arg_min(x, (others, model)) AS x_best
    FROM other_seeds
    WHERE n_others > 0
    GROUP BY ALL
), distance AS (
    SELECT eta, construction, readout, horizon, model, avg(x - x_best) AS d, count(*) AS n
    FROM good JOIN best USING (eta, construction, readout, horizon, system, seed)
    GROUP BY ALL
), residual AS (
    SELECT construction, readout, horizon, eta, system, seed, model,
        x - avg(x) OVER (PARTITION BY eta, construction, readout, horizon, system, model)
        - avg(x) OVER (PARTITION BY eta, construction, readout, horizon, system, seed)
        + avg(x) OVER (PARTITION BY eta, construction, readout, horizon, system) AS r
    FROM good
), cell_variance AS (
    SELECT construction, readout, horizon, sum(r ** 2) AS squares,
        (count(DISTINCT model) - 1) * (count(DISTINCT seed) - 1) AS df
    FROM residual GROUP BY construction, readout, horizon, eta, system
), pooled AS (
    SELECT construction, readout, horizon, sum(squares) / nullif(sum(df), 0) AS variance, sum(df) AS df
    FROM cell_variance GROUP BY ALL
), normalised AS (
    SELECT *, exp(x) / avg(exp(x)) OVER (PARTITION BY eta, construction, readout, horizon, system) AS e
    FROM good
), published AS (
    SELECT eta, construction, readout, horizon, model, avg(e) AS e,
        min(avg(e)) OVER (PARTITION BY eta, construction, readout, horizon) AS least
    FROM normalised GROUP BY eta, construction, readout, horizon, model
), winners AS (
    SELECT eta, construction, readout, horizon, system, seed, arg_min(model, (x, model)) AS winner
    FROM good GROUP BY ALL
), share AS (
    SELECT eta, construction, readout, horizon, winner AS model, count(*) AS n_won
    FROM winners GROUP BY ALL
)
SELECT s.eta, s.construction, s.readout, s.horizon, s.model, exp(d) - 1 AS gap,
    exp(d - t * sqrt(2 * variance / n)) - 1 AS low, exp(d + t * sqrt(2 * variance / n)) - 1 AS high,
    (e - least) / least AS gap_published,
    CASE WHEN complete THEN coalesce(n_won, 0) / n_cells END AS best_share, n_ok AS n_cells,
    CASE WHEN NOT complete THEN 'incomplete' WHEN d IS NULL THEN 'undefined' ELSE 'ok' END AS status,
    CASE
        WHEN NOT complete THEN format('{} of {} runs have no number', s.n_cells - n_ok, s.n_cells)
        WHEN d IS NULL THEN 'one seed: the best model cannot be chosen on the others'
    END AS reason
FROM model_state AS s
LEFT JOIN distance USING (eta, construction, readout, horizon, model)
LEFT JOIN pooled USING (construction, readout, horizon)
LEFT JOIN t_quantiles ON t_quantiles.df = least(pooled.df, 1000)
LEFT JOIN published USING (eta, construction, readout, horizon, model)
LEFT JOIN share USING (eta, construction, readout, horizon, model)
ORDER BY ALL
