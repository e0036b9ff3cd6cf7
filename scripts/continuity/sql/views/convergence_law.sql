-- one model, method and input scale: measured error over the half-sample law at the finest step
-- ratio [] median over random systems of abs_linf / law
-- low [] 5 % quantile over random systems of abs_linf / law
-- high [] 95 % quantile over random systems of abs_linf / law
-- n_draws [] random systems
SELECT model, method, scale, median(abs_linf / law) AS ratio, quantile_cont(abs_linf / law, 0.05) AS low,
    quantile_cont(abs_linf / law, 0.95) AS high, count(*) AS n_draws
FROM convergence
WHERE law > 0 AND abs_linf > 0 AND tau = (SELECT min(tau) FROM convergence)
GROUP BY ALL
ORDER BY ALL
