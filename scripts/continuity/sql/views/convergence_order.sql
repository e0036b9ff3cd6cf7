-- one model, method and input scale: order of convergence, from the three finest steps
-- convergence_order [] mean over random systems of log2(error at 4 tau / error at tau) / 2, tau the finest step
-- low [] lower end of the 95 % t interval of convergence_order over random systems
-- high [] upper end of the 95 % t interval of convergence_order over random systems
-- n_draws [] random systems averaged
WITH ranked AS (
    SELECT *, rank() OVER (PARTITION BY draw, model, method, scale ORDER BY tau) AS fineness FROM convergence
), slope AS (
    SELECT draw, model, method, scale,
        ln(max(rel_linf) FILTER (fineness = 3) / max(rel_linf) FILTER (fineness = 1))
        / ln(max(tau) FILTER (fineness = 3) / max(tau) FILTER (fineness = 1)) AS slope
    FROM ranked
    WHERE fineness <= 3 AND rel_linf > 0
    GROUP BY ALL
), cell AS (
    SELECT model, method, scale, avg(slope) AS convergence_order, stddev_samp(slope) AS spread, count(slope) AS n_draws
    FROM slope GROUP BY ALL
)
SELECT model, method, scale, convergence_order, convergence_order - t * spread / sqrt(n_draws) AS low,
    convergence_order + t * spread / sqrt(n_draws) AS high, n_draws
FROM cell LEFT JOIN t_quantiles ON df = least(n_draws - 1, 1000)
ORDER BY ALL
